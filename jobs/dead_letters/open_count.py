"""How many dead letters are open, without looking at them: `batchmerge status` asks no Spark.

Landed batches say how many they have, and how many of earlier ones they have recovered. Of batches that retention has
forgotten, and of dead letters that it has deleted, a property of the table keeps the balance.
"""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from jobs.iceberg.history import landed_batches, property_prefix
from jobs.landing.intermediate import IntermediateTable


def open_count(place: IntermediateTable) -> int:
    """How many there are."""
    table = place.catalog.load(place.identifier)
    return _open_by_batches(place, table) + _balance(place, table) if table else 0


def keep_count(place: IntermediateTable, found: int) -> None:
    """Keeps the balance, where so many were found to be open."""
    table = place.catalog.require(place.identifier)
    balance = found - _open_by_batches(place, table)
    if balance != _balance(place, table):
        place.catalog.commit(table, (), (SetPropertiesUpdate(updates={_property(place): str(balance)}),))


def _open_by_batches(place: IntermediateTable, table: Table) -> int:
    batches = landed_batches(table, place.pipeline).batches
    return sum(batch.counts.quarantined - batch.counts.recovered for batch in batches)


def _balance(place: IntermediateTable, table: Table) -> int:
    return int(table.metadata.properties.get(_property(place), 0))


def _property(place: IntermediateTable) -> str:
    return property_prefix(place.pipeline, "main") + "letters-before"
