"""Landing without an intermediate table: the pipeline's only destination, an append-only Iceberg table, is written at
once (`intermediate.direct: true`). One write instead of two; there is nothing to merge, and replay is from Kafka.

Dead letters go to `<pipeline>_<suffix>` as ever, in a second pass over the batch's ranges that is made only where there
are any. They are published before the batch, and only those whose coordinates are not there yet: so a crash between
the two commits neither loses nor doubles one. The batch counts as landed from the second commit on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.batch import Batch, CommittedState, Counts, LandedBatch
from jobs.changes.columns import KEPT, ROWS, RowColumn, landing_schema
from jobs.failpoints import failpoint
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.history import landed_batches
from jobs.iceberg.rows import with_all_columns
from jobs.landing.accounting import check, refuse_bad_records
from jobs.landing.intermediate import IntermediateTable, publish_batch, publish_landed
from jobs.landing.writing import LandingSource, Selection, write_records
from jobs.offsets import Offsets
from jobs.spec.pipeline import PipelineSpec
from jobs.watermark import Watermark
from resources.errors import InvariantBroken, TerminalError
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster
from resources.spark import spark_errors
from sql import quote


class TableToLandIn(Protocol):
    """A destination table whose commits can be landings."""

    @property
    def pipeline(self) -> str: ...

    @property
    def spec(self) -> PipelineSpec: ...

    @property
    def catalog(self) -> IcebergCatalog: ...

    @property
    def name(self) -> str: ...

    @property
    def identifier(self) -> str:
        """The table's name in its catalog."""

    @property
    def branch(self) -> str:
        """The branch to publish to."""

    @property
    def columns(self) -> Sequence[RowColumn]: ...

    def prepare(self) -> list[str]: ...

    def committed(self) -> CommittedState | None: ...

    def attempt(self, committed: CommittedState | None) -> Attempt:
        """A try at the table's next commit."""


@dataclass(frozen=True)
class DirectLanding:
    """The destination as the place where batches are landed; what `IntermediateTable` is to other pipelines."""

    destination: TableToLandIn
    dead_letters: IntermediateTable

    @property
    def identifier(self) -> str:
        return self.destination.identifier

    @property
    def catalog(self) -> IcebergCatalog:
        return self.destination.catalog

    @property
    def path(self) -> tuple[str, ...]:
        """Where the dead letters are, in Spark SQL; good records are in the destination itself."""
        return self.dead_letters.path

    def prepare(self) -> list[str]:
        """Creates or evolves the destination and the table of dead letters."""
        return [*self.dead_letters.prepare(), *self.destination.prepare()]

    def committed(self) -> CommittedState | None:
        return self.destination.committed()

    def current_state(self) -> tuple[CommittedState | None, int]:
        """The destination's state; what a rollback means there, its `on_rollback` says."""
        state = self.destination.committed()
        return state, state.batch_number if state else 0

    def reset(
        self, batch: Batch, standing: CommittedState | None, watermark: Watermark, summary: dict[str, str]
    ) -> None:
        """Publishes a batch that resets offsets in the destination."""
        self.prepare()
        attempt = self.destination.attempt(standing)
        publish_batch(attempt, LandedBatch(batch, Counts(), watermark, snapshot_id=0), summary)

    def landed(self) -> tuple[list[LandedBatch], bool]:
        """The batches that the destination's snapshots still know, ascending, and whether from the first one on."""
        table = self.catalog.load(self.identifier)
        branch = self.destination.branch
        return landed_batches(table.metadata, self.destination.pipeline, branch) if table else ([], True)

    def snapshot_with(self, newest: LandedBatch) -> int:
        raise TerminalError(
            f"{newest.batch} is in its table already: the pipeline has `intermediate.direct`",
            where=self.identifier,
            remedy="switch `intermediate.direct` off in a new pipeline to merge and replay landed batches",
        )

    def land(
        self,
        spark: SparkSession,
        kafka: KafkaCluster,
        batch: Batch,
        committed: CommittedState | None,
        log_ends: Offsets,
        summary: dict[str, str],
    ) -> LandedBatch:
        """Like `IntermediateTable.land`, into the destination."""
        value_type = landing_schema(self.destination.spec).field("value").type
        source = LandingSource(kafka, self.destination.spec, batch, value_type, self.dead_letters.registries)
        with spark_errors(self.destination.name):
            attempt = self.destination.attempt(committed)
            failpoint("land.begun")
            written = write_records(spark, source, attempt, Selection(ROWS, False, self.rows_for(attempt)))
            skip = self.destination.spec.on_bad_record == "skip"
            kept = 0 if skip else written.quarantined
            counts = check(batch, self.destination.name, written, attempt.added_rows() + kept, skip)
            refuse_bad_records(self.destination.spec, batch, counts, self.destination.name, lambda: source.bad(spark))
            if counts.quarantined:
                self._keep_dead_letters(spark, source, counts.quarantined, summary)
            failpoint("land.written")
        return publish_landed(attempt, batch, committed, counts, written.newest, log_ends, summary)

    def rows_for(self, attempt: Attempt) -> Callable[[DataFrame], DataFrame]:
        """Landed rows to rows of the destination, with all columns that it has."""
        columns = {c.name: F.col(quote("spark", c.path)) for c in self.destination.columns}
        return lambda landed: with_all_columns(
            landed.select([c.alias(n) for n, c in columns.items()]), list(columns), attempt.schema
        )

    def _keep_dead_letters(
        self, spark: SparkSession, source: LandingSource, expected: int, summary: dict[str, str]
    ) -> None:
        """Appends the batch's dead letters that are not there yet."""
        kept = self.dead_letters
        table = kept.catalog.require(kept.identifier)
        attempt = Attempt(kept.catalog, kept.identifier, kept.pipeline, None)
        known = spark.table(quote("spark", kept.path)).where(F.col("error").isNotNull())
        if table.current_snapshot() is None:
            known = known.limit(0)
        coordinates = known.select(F.col("kafka.topic"), F.col("kafka.partition"), F.col("kafka.offset"))

        def missing(bad: DataFrame) -> DataFrame:
            same = [bad[f"kafka.{c}"] == coordinates[c] for c in ("topic", "partition", "offset")]
            return bad.join(coordinates, same, "left_anti")

        schema = attempt.schema
        stored = LandingSource(
            source.kafka,
            source.spec,
            source.batch,
            schema.field("value").type,
            kept.registries,
            KEPT.name in schema.names,
        )
        written = write_records(spark, stored, attempt, Selection((), True, missing))
        if check(source.batch, kept.identifier, written, written.quarantined).quarantined != expected:
            raise InvariantBroken(
                f"{source.batch}: {expected} bad records were found, then {written.quarantined}; nothing was published",
                where=kept.identifier,
                remedy="run again; if it stays, report it with the Spark server's log",
            )
        # On its base only: two runs at once must not both add the same dead letters.
        attempt.publish_head(summary, {})
