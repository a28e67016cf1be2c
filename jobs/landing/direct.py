"""Landing without an intermediate table: the pipeline's only destination, an append-only Iceberg table, is written at
once (`intermediate.direct: true`). One write instead of two; there is nothing to merge, and replay is from Kafka.

Dead letters still go to `<pipeline>_<suffix>`, in a second pass over the batch's ranges that is made only where there
are any. They are published before the batch, and only those that are not there yet: so a crash between the two commits
neither loses nor doubles one. The batch counts as landed from the second commit on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.batch import Batch, CommittedState, Counts, LandedBatch, LandedBatches
from jobs.changes.columns import READINGS, ROWS, landing_schema
from jobs.changes.landed_rows import LandedSnapshot
from jobs.failpoints import failpoint
from jobs.iceberg import spark_writes
from jobs.iceberg.append import Append
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.history import landed_batches, recreated_properties, recreated_topics_of
from jobs.iceberg.rows import with_all_columns
from jobs.landing.batch_records import BatchRecords
from jobs.landing.intermediate import IntermediateTable, publish_batch, publish_landed
from jobs.landing.landing_table import Readings
from jobs.landing.new_columns import Written, write_with_new_columns
from jobs.landing.new_tables import NameRule
from jobs.landing.ranges import land_ranges
from jobs.landing.registry_schemas import known_ids
from jobs.landing.task import Selection
from jobs.lineage import recreated_topics
from jobs.offsets import Offsets
from jobs.spec.columns import RowColumn
from jobs.spec.pipeline import PipelineSpec
from jobs.watermark import Watermark
from resources.errors import ConfigurationError, InvariantBroken, TerminalError
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

    def append(self, committed: CommittedState | None) -> Append:
        """A try at the table's next commit, of files that are written for it."""

    def attempt(self, committed: CommittedState | None) -> Attempt:
        """A try at the table's next commit that Spark writes."""

    def under(self, spec: PipelineSpec) -> TableToLandIn:
        """The same table by another version of the pipeline file."""


@dataclass(frozen=True)
class DirectLanding:
    """The destination as the table that batches are landed in.

    Attributes:
        dead_letters: the intermediate table that the pipeline would have; it holds the dead letters only.
    """

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

    def under(self, spec: PipelineSpec) -> DirectLanding:
        """The same by another version of the pipeline file."""
        return DirectLanding(self.destination.under(spec), replace(self.dead_letters, spec=spec))

    def exists(self) -> bool:
        return self.catalog.load(self.identifier) is not None

    def prepare(self) -> list[str]:
        """Creates or evolves the destination and the table of dead letters."""
        return [*self.dead_letters.prepare(), *self.destination.prepare()]

    def committed(self) -> CommittedState | None:
        return self.destination.committed()

    def current_state(self) -> tuple[CommittedState | None, int]:
        state = self.destination.committed()
        return state, state.batch_number if state else 0

    def reset(
        self, batch: Batch, current: CommittedState | None, watermark: Watermark, summary: dict[str, str]
    ) -> None:
        self.prepare()
        append = self.destination.append(current)
        landed = LandedBatch(batch, Counts(), watermark, snapshot_id=0)
        pipeline, branch = self.dead_letters.pipeline, self.destination.branch
        recreated = recreated_topics([*([current] if current else []), CommittedState.after(landed)])
        mirrored = recreated_properties(self.recreated(), recreated, pipeline, branch) if recreated else {}
        publish_batch(append, landed, summary, mirrored)

    def landed(self) -> LandedBatches:
        """The batches that the destination's snapshots still know."""
        table = self.catalog.load(self.identifier)
        return (
            landed_batches(table.metadata, self.dead_letters.pipeline, self.destination.branch)
            if table
            else LandedBatches()
        )

    def snapshot_with(self, newest: LandedBatch) -> LandedSnapshot:
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

        def write(spec: PipelineSpec, refused: Mapping[str, str] | None, _names: NameRule | None) -> Written:
            registries, table = self.dead_letters.registries, self.destination.under(spec)
            append = table.append(committed)
            ids = known_ids(append.properties, append.pipeline)
            records = BatchRecords(
                kafka, spec, batch, landing_schema(spec), registries, refused_fields=refused, schema_ids=ids
            )
            failpoint("land.begun")
            good = Selection(ROWS, bad_records=False, columns={c.name: c.path for c in table.columns})
            return records, append, land_ranges(spark, records, append, good, spec.on_bad_record == "skip")

        with spark_errors(self.destination.name):
            records, append, landed = write_with_new_columns(
                self.dead_letters.spec, write, lambda spec: self.under(spec).prepare()
            )
            if landed.counts.quarantined:
                self._keep_dead_letters(spark, records, landed.counts.quarantined, summary)
            failpoint("land.written")
        return publish_landed(append, batch, committed, landed, log_ends, summary)

    def revise(
        self, batch: Batch, committed: CommittedState, readings: Readings, summary: dict[str, str]
    ) -> LandedBatch:
        """Appends the rows that the destination lacks; then says of the dead letters what has become of them.

        A run that dies in between is finished by the next retry, which finds the rows there.
        """
        letters = self.dead_letters
        columns = landing_schema(letters.spec)
        with spark_errors(self.destination.name):
            attempt = self.destination.attempt(committed)
            failpoint("land.begun")
            rows_for = self.rows_for(attempt)
            missing = lambda rows: rows_for(self._missing(rows, attempt))  # noqa: E731
            counts = readings.write(attempt, columns, Selection(ROWS, False), missing).counts
            failpoint("land.written")
        # On its base only: two at once must not both append the same rows.
        if not readings.from_letters:
            # Nothing of what is bad is kept, and no dead letter is closed.
            counts = replace(counts, quarantined=0, skipped=counts.skipped + counts.quarantined, recovered=0)
        landed = LandedBatch(batch, counts, committed.watermark, snapshot_id=0)
        done = publish_batch(attempt, landed, summary, rebase=False)
        if readings.from_letters:
            of_letters = Attempt(letters.catalog, letters.identifier, letters.pipeline, None)
            readings.write(of_letters, of_letters.schema, Selection(READINGS, bad_records=True))
            of_letters.publish_append(summary, {}, rebase=False)
        return done

    def _missing(self, rows: DataFrame, attempt: Attempt) -> DataFrame:
        """Landed rows whose coordinates the destination lacks.

        Raises:
            ConfigurationError: a topic was recreated, and rows do not say which topic of that name they are from.
        """
        there = rows.sparkSession.table(quote("spark", attempt.path))
        for topic, first in self.present_since().items():
            if "_batch" not in attempt.schema.names:
                raise ConfigurationError(
                    f"{topic} was recreated, and nothing in a row says which topic of that name it is from",
                    where=self.identifier,
                    remedy="replay from Kafka into a new table with `metadata_columns: [topic, partition, offset, "
                    "batch]`",
                )
            there = there.where((F.col("_topic") != topic) | (F.col("_batch") >= first))
        there = there.select("_topic", "__partition", "_offset")
        same = [
            rows["kafka.topic"] == there["_topic"],
            rows["kafka.partition"] == there["__partition"],
            rows["kafka.offset"] == there["_offset"],
        ]
        return rows.join(there, same, "left_anti")

    def rows_for(self, attempt: Attempt) -> Callable[[DataFrame], DataFrame]:
        """Landed rows to rows of the destination, with all columns that it has."""
        columns = {c.name: F.col(quote("spark", c.path)) for c in self.destination.columns}
        return lambda landed: with_all_columns(
            landed.select([c.alias(n) for n, c in columns.items()]), list(columns), attempt.schema
        )

    def recreated(self) -> dict[str, list[int]]:
        table = self.catalog.load(self.identifier)
        return recreated_topics_of(table, self.dead_letters.pipeline, self.destination.branch)

    def present_since(self) -> dict[str, int]:
        """Per topic that was recreated the first batch of the present topic of that name."""
        return {topic: numbers[-1] for topic, numbers in self.recreated().items()}

    def of_present_topics(self) -> Column:
        """Of a dead letter: it is from the present topic of its name."""
        present = F.lit(True)
        for topic, first in self.present_since().items():
            present &= (F.col("kafka.topic") != topic) | (F.col("batchNumber") >= first)
        return present

    def _keep_dead_letters(
        self, spark: SparkSession, records: BatchRecords, expected: int, summary: dict[str, str]
    ) -> None:
        """Appends the batch's dead letters that are not there yet."""
        letters = self.dead_letters
        table = letters.catalog.require(letters.identifier)
        attempt = Attempt(letters.catalog, letters.identifier, letters.pipeline, None)
        known = spark.table(quote("spark", letters.path)).where(F.col("error").isNotNull() & self.of_present_topics())
        if table.current_snapshot() is None:
            known = known.limit(0)
        coordinates = known.select(F.col("kafka.topic"), F.col("kafka.partition"), F.col("kafka.offset"))

        bad = replace(records, table=attempt.schema).bad(spark)
        same = [bad[f"kafka.{c}"] == coordinates[c] for c in ("topic", "partition", "offset")]
        spark_writes.append(bad.join(coordinates, same, "left_anti"), attempt.path, attempt.summary)
        found = attempt.added_rows()
        if found != expected:
            found += bad.join(coordinates, same, "left_semi").count()
        if found != expected:
            raise InvariantBroken(
                f"{records.batch}: {expected} bad records were found, then {found}; nothing was published",
                where=letters.identifier,
                remedy="run again; if it stays, report it with the Spark server's log",
            )
        # On its base only: two runs at once must not both add the same dead letters.
        attempt.publish_head(summary, {})
