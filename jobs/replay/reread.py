"""Records that are read from Kafka once more, in an Iceberg table of their own that stands in for the intermediate one.

The table lives as long as the replay; the next replay of the same table removes what a dead one has left.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jobs.batch import Batch, LandedBatch, LandedBatches
from jobs.changes.columns import CHANGES, landing_schema
from jobs.iceberg.append import Append
from jobs.iceberg.schema import iceberg_schema
from jobs.landing.batch_records import BatchRecords
from jobs.landing.ranges import land_ranges
from jobs.landing.registry_schemas import Registries
from jobs.landing.task import Selection
from jobs.pipeline import Pipeline
from jobs.watermark import Watermark
from resources.errors import BatchmergeError, CommitFailed
from resources.iceberg import IcebergCatalog
from resources.spark import spark_errors

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class RereadRows:
    """What a destination reads in a replay from Kafka: one batch, by the number and identity of the committed one.

    Attributes:
        snapshot: of the table, with all records in it.
    """

    catalog: IcebergCatalog
    identifier: str
    batch: LandedBatch
    snapshot: int

    @property
    def path(self) -> tuple[str, ...]:
        return (self.catalog.name, *self.identifier.split("."))

    def landed(self) -> LandedBatches:
        return LandedBatches([self.batch])

    def snapshot_with(self, newest: LandedBatch) -> int:
        if newest.batch.commit_id != self.batch.batch.commit_id:
            raise CommitFailed("the table has gone on since the records were read again", where=self.identifier)
        return self.snapshot


@contextmanager
def reread(pipeline: Pipeline, table: str, batch: Batch) -> Iterator[RereadRows]:
    """Reads the batch's ranges into a table that goes away with the context. Bad records are left out of it.

    Args:
        table: the destination that is replayed.

    Raises:
        BadRecords: under the policy `fail`.
    """
    spec, catalog = pipeline.spec, pipeline.intermediate.catalog
    mark = hashlib.sha256(table.encode()).hexdigest()[:12]
    identifier = f"{spec.intermediate.namespace}.{pipeline.name}_replay_{mark}"
    catalog.drop(identifier)
    catalog.create(identifier, iceberg_schema(landing_schema(spec)), properties={"format-version": "2"})
    try:
        with spark_errors(identifier):
            spark = pipeline.spark(f"replay {table}", catalog)
            append = Append(catalog, identifier, pipeline.name, None)
            records = BatchRecords(pipeline.kafka, spec, batch, append.schema, Registries(pipeline.registries()))
            landed = land_ranges(spark, records, append, Selection(CHANGES, bad_records=False), skip=True)
        snapshot = append.publish_append({}, {})
        yield RereadRows(catalog, identifier, LandedBatch(batch, landed.counts, Watermark(), snapshot), snapshot)
    finally:
        _drop(catalog, identifier)


def _drop(catalog: IcebergCatalog, identifier: str) -> None:
    """What cannot be dropped now, the next replay drops."""
    try:
        catalog.drop(identifier)
    except BatchmergeError as problem:
        _LOG.warning("%s is left behind: %s", identifier, problem)
