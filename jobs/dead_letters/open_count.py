"""The number of open dead letters, from metadata: `batchmerge status` starts no Spark.

Landed batches have the numbers of their dead letters, and of those of earlier batches that they recovered. A table
property keeps the balance for batches and dead letters that retention has removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table import Table

from jobs.batch import LandedBatch
from jobs.iceberg.landed_batches import landed_batches
from jobs.iceberg.table_property import DEAD_LETTER_BALANCE
from jobs.landing.intermediate import IntermediateTable


def open_count(place: IntermediateTable) -> int:
    """The number of open dead letters."""
    table = place.catalog.load(place.identifier)
    return _open_by_batches(place, table) + _balance(place, table) if table else 0


def keep_count(place: IntermediateTable, found: int) -> None:
    """Updates the balance so that the number of open dead letters is `found`."""
    table = place.catalog.require(place.identifier)
    balance = found - _open_by_batches(place, table)
    if balance != _balance(place, table):
        place.keep(table, DEAD_LETTER_BALANCE.written(balance, place.pipeline))


def balance_without(place: IntermediateTable, table: Table, removed: Sequence[LandedBatch]) -> dict[str, str]:
    """The table property that belongs into the commit that removes these batches: their dead letters stay as they are,
    open or not."""
    return DEAD_LETTER_BALANCE.written(_balance(place, table) + _open_by(removed), place.pipeline)


def _open_by_batches(place: IntermediateTable, table: Table) -> int:
    return _open_by(landed_batches(table, place.pipeline).batches)


def _open_by(batches: Sequence[LandedBatch]) -> int:
    return sum(batch.counts.quarantined - batch.counts.recovered for batch in batches)


def _balance(place: IntermediateTable, table: Table) -> int:
    return DEAD_LETTER_BALANCE.read(table.metadata.properties, place.pipeline)
