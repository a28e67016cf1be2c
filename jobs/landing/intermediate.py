"""The intermediate table: an Iceberg table of changes, one snapshot per batch, whose rows never change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from jobs.batch import PREFIX, Batch, CommittedState, Counts, LandedBatch, LandedBatches
from jobs.changes.columns import CHANGES, READINGS, landing_schema
from jobs.destinations.takes import Taking, takes_nothing
from jobs.evolution import plan_evolution
from jobs.failpoints import failpoint
from jobs.iceberg.append import Append
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.history import History, PipelineBranch, ancestors
from jobs.iceberg.landed_batches import landed_batches
from jobs.iceberg.schema import apply_changes, arrow_schema, iceberg_schema
from jobs.iceberg.table_property import RECREATED_TOPICS
from jobs.landing.column_forms import forms_property, with_forms
from jobs.landing.new_tables import NameRule, known_names, name_rule, new_table_properties
from jobs.landing.publish import ReadBatch, publish_batch, read_batch
from jobs.landing.reads import Reads, read_alone
from jobs.landing.registry_schemas import Registries, known_ids
from jobs.landing.required_columns import required_property, with_required
from jobs.lineage import joined, recreated_topics
from jobs.planning.plan import TopicState
from jobs.spec.new_tables import Named, allowed
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Evolution
from jobs.watermark import Watermark
from resources.errors import CommitFailed, ConfigurationError, TableReplaced
from resources.iceberg import IcebergCatalog, require_version
from resources.iceberg_errors import catalog_errors
from resources.kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.landing.new_columns import Written
    from jobs.landing.ranges import LandedRanges
    from jobs.landing.task import Selection

W = TypeVar("W", Append, Attempt)

_OWNER = PREFIX + "lands-for"
# Every batch adds one snapshot and one metadata file; later commits delete old metadata files.
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "write.distribution-mode": "none",
    "write.parquet.compression-codec": "zstd",
    # Many small files for each Spark task: if each counted as 4 MB, 1,000 of them would be 250 tasks.
    "read.split.open-file-cost": str(256 * 1024),
    # Compaction's row groups, as compressed: a reader holds a whole one, and its texts have to fit into 2 GB.
    "write.parquet.row-group-size-bytes": str(8 << 20),
    # Some readers hold a whole file.
    "write.target-file-size-bytes": str(64 << 20),
    # Readers select files by these columns, however many columns the value has (`jobs.changes.planned_files`).
    **{f"write.metadata.metrics.column.{c}": "full" for c in ("i", "batchNumber", "kafka.partition", "kafka.offset")},
}


@dataclass(frozen=True)
class IntermediateTable:
    """`<namespace>.<pipeline>_<suffix>` of a pipeline.

    Attributes:
        catalog: the table's catalog.
        registries: the Schema Registries that the pipeline names.
        reads: reads the records of a batch.
        taking: what the destination tables accept.
    """

    pipeline: str
    spec: PipelineSpec
    catalog: IcebergCatalog
    registries: Registries = field(default_factory=Registries)
    reads: Reads = read_alone
    taking: Taking = takes_nothing

    @property
    def identifier(self) -> str:
        return f"{self.spec.intermediate.namespace}.{self.pipeline}_{self.spec.intermediate.suffix}"

    @property
    def path(self) -> tuple[str, ...]:
        """The table's path in Spark SQL."""
        return self.catalog.spark_path(self.identifier)

    def found(self) -> tuple[pa.Schema | None, dict[str, Named]]:
        """The table's columns (None if it does not exist), and the names of tables that records have brought
        (`new_tables`)."""
        table = self.catalog.load(self.identifier)
        if table is None:
            return None, {}
        columns = with_required(arrow_schema(table), table.properties, self.pipeline)
        columns = with_forms(columns, table.properties, self.pipeline)
        return columns, allowed(self.spec, known_names(table.properties, self.pipeline))

    def exists(self) -> bool:
        return self.catalog.load(self.identifier) is not None

    def keep(self, table: Table, updates: dict[str, str]) -> None:
        """Sets properties of the table (`jobs.iceberg.table_property`)."""
        self.catalog.commit(table, (), (SetPropertiesUpdate(updates=updates),))

    def prepare(self) -> list[str]:
        """Creates the table, or adapts its schema; returns what was done, for people."""
        wanted = landing_schema(self.spec)
        table = self.catalog.load(self.identifier)
        if table is None:
            forms = forms_property({}, wanted, self.pipeline)
            properties = {"format-version": "2", **_PROPERTIES, _OWNER: self.pipeline, **forms}
            made = self.catalog.create(self.identifier, iceberg_schema(wanted), properties=properties)
            self._check_owner(made)
            return [f"create {self.identifier}"]
        self._check_owner(table)
        self._set_properties(table)
        if forms := forms_property(table.properties, wanted, self.pipeline):
            # Before the columns exist: a column without this record counts as text or bytes.
            self.keep(table, forms)
            table = self.catalog.require(self.identifier)
        changes = plan_evolution(self.identifier, arrow_schema(table), wanted, Evolution())
        apply_changes(table, changes)
        self._stamp_schema(self.catalog.require(self.identifier) if changes else table)
        return [f"{self.identifier}: {change}" for change in changes]

    def _check_owner(self, table: Table) -> None:
        """Requires that no other pipeline lands here: `a` with the suffix `b_tmp` and `a_b` with `tmp` have one table.

        Raises:
            ConfigurationError: another pipeline lands here.
        """
        owner = table.properties.get(_OWNER, self.pipeline)
        if owner != self.pipeline:
            raise ConfigurationError(
                f"pipeline {owner} lands its batches in this table",
                where=self.identifier,
                remedy="give one of the two another `intermediate.suffix` or `intermediate.namespace`",
            )

    def writable(self) -> Table:
        """The table, as long as pyiceberg can commit it. What is landed can still be merged if it cannot.

        Raises:
            ConfigurationError: somebody has raised its format version.
        """
        table = self.catalog.require(self.identifier)
        remedy = (
            "no version can be taken back: when the tables have all that is landed, drop this one, and go on with "
            f"`batchmerge offsets reset {self.pipeline} --to committed`"
        )
        require_version(table.format_version, self.identifier, remedy)
        return table

    def _set_properties(self, table: Table) -> None:
        """Sets what the table lacks."""
        lacking = {name: value for name, value in _PROPERTIES.items() if name not in table.properties}
        if lacking:
            self.keep(table, lacking)

    def _stamp_schema(self, table: Table) -> None:
        """Makes a snapshot with the present schema if there is none, since Spark reads a snapshot with its own schema.

        So batches that were landed before a column was added can be merged afterwards.
        """
        head = table.current_snapshot()
        if head is not None and head.schema_id != table.metadata.current_schema_id:
            with catalog_errors(self.identifier):
                table.append(table.schema().as_arrow().empty_table())

    def committed(self) -> CommittedState | None:
        """The state of the newest landed batch.

        Raises:
            TableReplaced: the table was rolled back.
        """
        history = self._history()
        if history.undone:
            at = f"batch {history.committed.batch_number}" if history.committed else "before its first batch"
            raise TableReplaced(
                f"the intermediate table was rolled back: it stands at {at}, batch {history.undone.batch_number} "
                "was landed",
                where=self.identifier,
                remedy="roll it forward again, or go on from the tables' own offsets: "
                f"`batchmerge offsets reset {self.pipeline} --to committed`",
            )
        return history.committed

    def current_state(self) -> tuple[CommittedState | None, int]:
        """The state of the table's head, also if rolled back, and the highest batch number that the table ever had."""
        history = self._history()
        return history.committed, max(s.batch_number if s else 0 for s in (history.committed, history.undone))

    def _history(self) -> History:
        table = self.catalog.load(self.identifier)
        return PipelineBranch(self.pipeline).history(table) if table else History(None, None)

    def reset(
        self, batch: Batch, current: CommittedState | None, watermark: Watermark, summary: dict[str, str]
    ) -> None:
        """Publishes a batch that resets offsets, on top of the current state."""
        self.prepare()
        append = Append(self.catalog, self.identifier, self.pipeline, current)
        landed = LandedBatch(batch, Counts(), watermark, snapshot_id=0)
        more = recreated_topics([*([current] if current else []), CommittedState.after(landed)])
        mirrored = RECREATED_TOPICS.written(joined(self.recreated(), more), self.pipeline) if more else {}
        publish_batch(append, landed, summary, mirrored)

    def recreated(self) -> dict[str, list[int]]:
        return PipelineBranch(self.pipeline).recreated(self.catalog.load(self.identifier))

    def landed(self) -> LandedBatches:
        """The landed batches that are still known."""
        table = self.catalog.load(self.identifier)
        return landed_batches(table, self.pipeline) if table else LandedBatches()

    def snapshot_with(self, newest: LandedBatch) -> int:
        """The table's present snapshot, which has this batch and all before it.

        Raises:
            CommitFailed: it no longer has them; the lineage check says why.
        """
        metadata = self.catalog.require(self.identifier).metadata
        known = [s.snapshot_id for s in ancestors(metadata, "main")]
        if newest.snapshot_id not in known:
            raise CommitFailed(f"landed {newest.batch} was removed or rolled back meanwhile", where=self.identifier)
        return known[0]

    def read(
        self,
        spark: SparkSession,
        kafka: KafkaCluster,
        batch: Batch,
        committed: CommittedState | None,
        topics: TopicState,
        until_published: Callable[[], None] | None = None,
    ) -> ReadBatch:
        """Reads exactly the batch's ranges into files.

        Args:
            committed: the state that the batch was planned from.
            topics: what it was planned from, for `caught_up_through`.
            until_published: waits until that state is committed (`jobs.landing.read_ahead`); None: it is.

        Raises:
            CommitFailed: another run landed meanwhile. BadRecords: the policy is `fail`. InvariantBroken: the counts
            do not add up. ConfigurationError: somebody has raised the table's format version.
        """
        from jobs.landing.batch_records import BatchRecords
        from jobs.landing.new_columns import write_with_new_columns
        from jobs.landing.ranges import judge, land_ranges
        from jobs.landing.task import Selection
        from resources.spark_errors import spark_errors

        selection = Selection(CHANGES, bad_records=self.spec.on_bad_record != "skip")

        def write(spec: PipelineSpec, refused: Mapping[str, str] | None, names: NameRule | None) -> Written:
            table, pending = self.writable(), until_published is not None
            append = Append(self.catalog, self.identifier, self.pipeline, committed, table=table, pending=pending)
            failpoint("land.begun")
            names = names or name_rule(spec, known_names(append.properties, self.pipeline))
            ids = known_ids(append.properties, self.pipeline)
            records = BatchRecords(
                kafka, spec, batch, append.schema, self.registries, {}, refused, names, schema_ids=ids,
                reads=self.reads, record_size=append.row_size,
            )  # fmt: skip
            return records, append, land_ranges(spark, records, append, selection)

        def evolve(spec: PipelineSpec) -> None:
            if until_published:  # the files of the batch before have the columns that the table has now
                until_published()
            self._follow(spec)

        with spark_errors(self.identifier):
            records, append, landed = write_with_new_columns(self.spec, write, evolve, self.taking)
            judge(spark, records, self.identifier, landed)
            failpoint("land.written")
        return read_batch(append, self.spec.source.value, batch, committed, landed, topics)

    def _follow(self, spec: PipelineSpec) -> None:
        # Before the columns exist: an existing column without this record counts as optional.
        table = self.catalog.require(self.identifier)
        if required := required_property(table.properties, spec, self.pipeline):
            self.keep(table, required)
        replace(self, spec=spec).prepare()

    def revise(
        self,
        batch: Batch,
        committed: CommittedState,
        known: Sequence[LandedBatch],
        kind: type[W],
        write: Callable[[W, Selection], LandedRanges],
        summary: dict[str, str],
    ) -> LandedBatch:
        """Lands records that were read again, from Kafka or from dead letters: a batch that revises earlier ones.

        Args:
            known: the landed batches from which it was planned.
            write: writes the selected records, for a commit of this kind.

        Raises:
            CommitFailed: another run landed meanwhile, or retention has removed some of the batches.
            BadRecords, InvariantBroken: as in landing.
        """
        from jobs.landing.task import Selection
        from resources.spark_errors import spark_errors

        keeps_bad = self.spec.on_bad_record != "skip"
        with spark_errors(self.identifier):
            commit = kind(
                self.catalog, self.identifier, self.pipeline, committed, oldest=known[0].number if known else None
            )
            failpoint("land.begun")
            written = write(commit, Selection(READINGS, keeps_bad))
            failpoint("land.written")
        named = new_table_properties(commit, written.report, batch.number)
        watermark = committed.watermark.truncated(written.report.truncated_below)
        landed = LandedBatch(batch, written.counts, watermark, 0, moves=written.report.moves)
        return publish_batch(commit, landed, summary, named)
