"""One pipeline put together: its file, its connections, its tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from jobs.batch import PREFIX, Batch, CommittedState, LandedBatch
from jobs.destinations.base import Destination
from jobs.destinations.merge_context import MergeContext
from jobs.destinations.registry import kind_of
from jobs.destinations.takes import Takes
from jobs.events.role import Role
from jobs.events.shared_events import SharedEvents
from jobs.landing.intermediate import IntermediateTable
from jobs.landing.reads import Reads, read_alone
from jobs.landing.registry_schemas import Registries
from jobs.lineage import check_meaning
from jobs.members.known_topics import remember_if_possible
from jobs.offsets import Offsets, TopicPartition
from jobs.planning.first_offsets import first_offsets
from jobs.planning.highest_batch import highest_of
from jobs.planning.plan import TopicState, partitions_with_new_leader, plan_batch, refuse_cut_off
from jobs.planning.topic_state import topic_state
from jobs.spark.sessions import OwnSessions, Sessions
from jobs.spark.spark_tasks import OneTask
from jobs.spec.added_columns import adds_columns
from jobs.spec.landed_columns import with_landed_columns
from jobs.spec.new_tables import Named, all_tables, named_table, with_own_columns
from jobs.spec.open_key import key_is_open
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table, table_named
from jobs.time_limit import raise_if_to_end, with_timeout
from resources.connections import (
    Connections,
    IcebergConnection,
    KafkaConnection,
    RegistryConnection,
    SparkConnection,
)
from resources.errors import BatchmergeError
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster
from resources.registries import open_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("batchmerge")
T = TypeVar("T")


class ReachedBySpark(Protocol):
    """A catalog, or a destination."""

    def spark_settings(self) -> Mapping[str, str]:
        """Settings of a session that reaches it."""


@dataclass
class Pipeline:
    """A pipeline file with its connections opened on demand.

    Attributes:
        spec: the pipeline file, with the columns and the key that landing has found where the file leaves them open.
        run_id: who acts (a Dagster run id); goes into snapshot summaries, labels and comments.
        part_of: the pipeline that this one is a member of (`source.for_each`).
        sessions: Spark's sessions, and what it means to interrupt them.
        reads: reads the records of a batch.
        one_task: runs merges that need a single Spark task; members share one job for them.
        events: publishes its events with those of other members; None: it publishes them itself.
        only: limits the pipeline to the tables of this name, if records name tables (`jobs.members`); None: all.
        roles: publishers of its events, by name; they stay open for the next batch of this process.
        retry_at: when to ask tables again that did not answer, by name; on the monotonic clock.
    """

    name: str
    spec: PipelineSpec
    connections: Connections
    run_id: str = "by-hand"
    part_of: str | None = None
    sessions: Sessions = field(default_factory=OwnSessions)
    roles: dict[str, Role] = field(default_factory=dict)
    retry_at: dict[str, float] = field(default_factory=dict)
    only: str | None = None
    reads: Reads = read_alone
    one_task: OneTask = field(default_factory=OneTask)
    events: SharedEvents | None = None
    names: Mapping[str, Named] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.kafka = self.connections.opened(self.spec.source.connection, KafkaConnection, KafkaCluster)
        self._declared = self.spec
        self.intermediate = self._intermediate()
        self.resolve()

    def for_a_thread(self) -> Pipeline:
        """A copy for one thread, so that no other thread resolves it meanwhile; it shares the sessions."""
        return replace(self, spec=self._declared)

    def named(self, name: str) -> Pipeline:
        """The same file as a pipeline of another name, with the columns and the key that are landed there."""
        return replace(self, name=name, spec=self._declared, sessions=OwnSessions())

    def take_columns(self, other: Pipeline) -> None:
        """Goes on with the columns and the key that another one has found, where the file leaves them open and nothing
        is landed yet."""
        if not self.intermediate.exists():
            self.adopt(other.spec)

    def resolve(self) -> None:
        """Goes on with the columns, the key and the tables that landing has found since, where the file leaves them
        open."""
        opens_columns = adds_columns(self._declared) or key_is_open(self._declared)
        if not (opens_columns or self.spec.new_tables):
            return
        columns, names = self.intermediate.found()
        if names.keys() - self.names.keys():
            remember_if_possible(self.name, names)
        self.names = names
        if opens_columns:
            self.adopt(with_landed_columns(self._declared, columns))

    def adopt(self, resolved: PipelineSpec) -> None:
        """Goes on with this spec: the pipeline file, with columns and a key that were found."""
        if resolved.source != self.spec.source:
            self.spec = resolved
            self.intermediate = self._intermediate()

    def topics(self) -> list[str]:
        """The topics that it reads now; named ones may not exist."""
        source = self.spec.source
        return self.kafka.topics((), source.pattern, self.spec.own_topics) if source.pattern else sorted(source.topics)

    def resolved(self, destination: Destination) -> Destination:
        """The destination with all columns that landing has added so far."""
        self.resolve()
        table = destination.table
        if named := table.named:
            table = table.of_name(self.names.get(named.name, named), table.table)
        same = destination.spec is self.spec or destination.spec.source == self.spec_of(table).source
        return destination if same else self.destination_of(table)

    def _intermediate(self) -> IntermediateTable:
        connection = self.spec.intermediate.connection
        catalog = self.connections.opened(connection, IcebergConnection, IcebergCatalog)
        registries = {
            name: self.connections.opened(name, RegistryConnection, open_registry)
            for name in self.spec.source.registries
        }
        return IntermediateTable(self.name, self.spec, catalog, Registries(registries), self.reads, self.taking)

    def taking(self, names: Collection[str]) -> Mapping[str, Mapping[str, Takes]]:
        """The types that each table accepts in those of these columns that it has. A table that does not answer, or
        refuses us, does not delay the landing: records then decide the types, and its merge refuses one that the table
        cannot have."""
        found: dict[str, Mapping[str, Takes]] = {}
        for destination in self.destinations():
            try:
                found[destination.name] = destination.takes(names)
            except BatchmergeError as problem:
                _LOG.warning("%s does not say which columns it has: %s", destination.name, problem)
        return found

    @property
    def group(self) -> str:
        """The consumer group that follows the tables; members of a pipeline share one."""
        return self.spec.control.group(self.part_of or self.name)

    def group_of_role(self, role: str) -> str:
        """The consumer group, and the id of transactions, of a publisher of the pipeline's events."""
        return self.spec.control.group(self.name, role)

    @property
    def run_properties(self) -> dict[str, str]:
        return {PREFIX + "run-id": self.run_id}

    @property
    def tables(self) -> list[Table]:
        """The tables of the pipeline file, and the tables that records have named."""
        return all_tables(self.spec, self.names.values())

    def table(self, entry: int) -> Table:
        """The table that an entry of the file stands for: itself, or the one of the name that this is about."""
        table, name = self.spec.tables[entry], self.only
        return table if name is None else named_table(table, self.names[name])

    def destinations(self) -> list[Destination]:
        return [self.destination_of(table) for table in self.tables]

    def destination(self, table: str) -> Destination:
        """The destination of the table that a person names so (`table_named`)."""
        return self.destination_of(table_named(self.name, self.tables, table))

    def spark(self, role: str, *tables: ReachedBySpark) -> SparkSession:
        """The session of a role; opened once, and older operations of it interrupted then.

        Args:
            tables: catalogs and destinations that it is to reach.
        """
        from resources.spark import open_session

        def opened() -> SparkSession:
            settings = {k: v for table in tables for k, v in table.spark_settings().items()}
            connection = self.connections.get(self.spec.spark, SparkConnection)
            return open_session(connection, f"{self.name}/{role}", settings)

        raise_if_to_end()  # work that was given up begins nothing more in Spark
        return self.sessions.get(role, opened)

    def stop(self) -> None:
        """Stops what runs in any session of the pipeline."""
        self.sessions.interrupt_all()

    def in_time(self, seconds: float, where: str, work: Callable[[], T], role: str | None = None) -> T:
        """Does the work within the time limit, and stops its role's session once the time is over.

        Args:
            where: what is worked on, for error messages.
            role: whose session the work uses; None: it has the name of `where`.

        Raises:
            TimeLimitReached: no answer in time.
        """
        return with_timeout(seconds, where, work, lambda: self.sessions.interrupt(role or where))

    def land_in_time(self, work: Callable[[], T], done: Sized = ()) -> T:
        """Does the work of a landing within the file's time limit for a batch.

        Args:
            done: batches that the work has landed; the time begins again with each further one.

        Raises:
            TimeLimitReached: no answer in time.
        """
        return with_timeout(self.spec.batch.time_limit_seconds, f"landing of {self.name}", work, self.stop, done)

    def merge_context(self, destination: Destination) -> MergeContext:
        """The session, tables and options that a merge into this destination uses."""

        def session() -> SparkSession:
            return self.spark(destination.name, self.intermediate.catalog, destination)

        return MergeContext(self.name, destination.spec, session, self.intermediate, self.run_id, self.one_task)

    def topic_state(self, committed: CommittedState | None = None) -> TopicState:
        """What Kafka has for the pipeline's topics now; for a plan that goes on from this state (`topic_state`)."""
        return topic_state(self.kafka, self.topics(), committed.offsets if committed else {})

    def plan_batch(self, committed: CommittedState | None, topics: TopicState) -> Batch | None:
        """The next batch after the committed one."""
        moved = partitions_with_new_leader(committed, topics)
        if committed and moved:
            refuse_cut_off(committed, self.kafka.cut_off(moved))
        return plan_batch(
            pipeline=self.name,
            meaning_hash=self.spec.meaning_hash,
            committed=committed,
            highest_known=committed.batch_number if committed else highest_of(self.destinations()),
            topics=topics,
            start=lambda partitions: first_offsets(
                self.name, self.spec.source.start, partitions, topics, self.offsets_at
            ),
            max_records=self.spec.batch.max_records,
            now=int(time.time() * 1000),
            key_must_stay=self.spec.key_must_stay,
            pin_start=self.spec.source.start == "latest",
        )

    def check_meaning(self, committed: CommittedState | None, batches: Sequence[LandedBatch] = ()) -> None:
        """Raises if keys, op mapping or order have changed (`jobs.lineage.check_meaning`)."""
        check_meaning(self.name, self.spec.meaning_hash, committed, batches)

    def offsets_at(self, partitions: list[TopicPartition], instant: datetime) -> Offsets:
        """The first offset of each partition at or after this time; its end if there is none."""
        return self.kafka.offsets_at(partitions, int(instant.timestamp() * 1000))

    def destination_of(self, table: Table) -> Destination:
        """The destination of an entry of the pipeline file; tables in different systems may have the same name."""
        return kind_of(table).open(self.name, self.spec_of(table), table, self.connections)

    def spec_of(self, table: Table) -> PipelineSpec:
        """The pipeline as the table sees it: without the columns that records have brought for other tables."""
        return with_own_columns(self.spec, self._declared, table)
