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
from jobs.first_offsets import first_offsets
from jobs.highest_batch import highest_of
from jobs.known_topics import remember
from jobs.landing.intermediate import IntermediateTable
from jobs.landing.reads import Reads, read_alone
from jobs.landing.registry_schemas import Registries
from jobs.landing.sample import keyless, sampled_columns, sampled_key, sampled_names
from jobs.lineage import check_meaning
from jobs.offsets import Offsets, TopicPartition
from jobs.plan import TopicState, partitions_with_new_leader, plan_batch, refuse_cut_off
from jobs.sessions import OwnSessions, Sessions
from jobs.spark_tasks import OneTask
from jobs.spec.added_columns import Additions, adds_columns, key_is_open, with_landed_columns
from jobs.spec.new_tables import Named, all_tables, named_table, with_own_columns
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.time_limit import raise_if_to_end, with_timeout
from jobs.topic_state import topic_state
from resources.connections import (
    Connections,
    IcebergConnection,
    KafkaConnection,
    SchemaRegistryConnection,
    SparkConnection,
)
from resources.errors import ConfigurationError, Unavailable
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster
from resources.schema_registry import SchemaRegistry

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
        spec: the pipeline file, and the columns and the key that landing has found where it leaves them open.
        run_id: who acts (a Dagster run id); goes into snapshot summaries, labels and comments.
        part_of: the pipeline that this one is a member of (`source.for_each`).
        seen: what Kafka has for the topics, where somebody has just asked for many pipelines at once; used once.
        reads: how the records of a batch are read.
        one_task: how that part of a merge is done which takes one task of Spark.
        events: where its events are published with those of other members of the pipeline; None: by itself.
        only: of the tables that records have named, the name of those that this is about (`jobs.members`).
        roles: publish its events, by name; open for the next batch of this process.
        silent_until: tables that did not answer, by name, and when to ask them again; on the monotonic clock.
    """

    name: str
    spec: PipelineSpec
    connections: Connections
    run_id: str = "by-hand"
    part_of: str | None = None
    seen: TopicState | None = None
    sessions: Sessions = field(default_factory=OwnSessions)
    roles: dict[str, Role] = field(default_factory=dict)
    silent_until: dict[str, float] = field(default_factory=dict)
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
        """The same once more, which nobody else resolves meanwhile; they share the sessions."""
        return replace(self, spec=self._declared)

    def named(self, name: str) -> Pipeline:
        """What the same file is under another name, with the columns and the key that are landed there."""
        return replace(self, name=name, spec=self._declared, sessions=OwnSessions())

    def take_columns(self, other: Pipeline) -> None:
        """Goes on with the columns and the key that another one has found, where the file leaves them open and nothing
        is landed yet."""
        if not self.intermediate.exists():
            self._take(other.spec)

    def resolve(self) -> None:
        """Takes over the columns, the key and the tables that landing has found since, where the file leaves them
        open."""
        opens_columns = adds_columns(self._declared) or key_is_open(self._declared)
        if not (opens_columns or self.spec.new_tables):
            return
        columns, names = self.intermediate.found()
        if names.keys() - self.names.keys():
            remember(self.name, names)
        self.names = names
        if opens_columns:
            self._take(with_landed_columns(self._declared, columns))

    def _take(self, resolved: PipelineSpec) -> None:
        if resolved.source != self.spec.source:
            self.spec = resolved
            self.intermediate = self._intermediate()

    def take_key(self) -> bool:
        """Takes over the key that the newest records have, where it is open; True if so.

        Raises:
            ConfigurationError: they have none, or one that cannot be the tables'.
        """
        if not key_is_open(self.spec):
            return False
        resolved = self._with_sampled_key()
        if resolved is None:
            raise keyless(self.name)
        self._take(resolved)
        return True

    def _with_sampled_key(self) -> PipelineSpec | None:
        return sampled_key(self.spec, self.kafka, self._topics(), Registries(self.registries()), self.taking)

    def _topics(self) -> list[str]:
        return self.kafka.topics(self.spec.source.topics, self.spec.source.pattern, self.spec.own_topics)

    def resolved(self, destination: Destination) -> Destination:
        """The destination with all columns that landing has added so far."""
        self.resolve()
        table = destination.table
        if named := table.named:
            table = table.of_name(self.names.get(named.name, named), table.table)
        same = destination.spec is self.spec or destination.spec.source == self.spec_of(table).source
        return destination if same else self.destination_of(table)

    def with_sampled_columns(self) -> tuple[Pipeline, Additions]:
        """The pipeline as it would be with the columns and the key that the newest records bring; for `plan`."""
        keyed = (self._with_sampled_key() if key_is_open(self.spec) else None) or self.spec
        if not adds_columns(keyed):
            return replace(self, spec=keyed), Additions(keyed)
        found = sampled_columns(keyed, self.kafka, self._topics(), Registries(self.registries()), self.taking)
        return replace(self, spec=found.spec), found

    def with_sampled_names(self, batch: int) -> Pipeline:
        """The pipeline with the tables that the newest records name too, as if this batch had them; for `plan`."""
        known = self.names
        names = sampled_names(self.spec, self.kafka, self._topics(), Registries(self.registries()), known)
        made = replace(self)
        made.names = {**known, **{name: Named(name, batch) for name in names}}
        return made

    def _intermediate(self) -> IntermediateTable:
        connection = self.spec.intermediate.connection
        catalog = self.connections.opened(connection, IcebergConnection, IcebergCatalog)
        registries = Registries(self.registries())
        return IntermediateTable(self.name, self.spec, catalog, registries, self.reads, self.taking)

    def taking(self, names: Collection[str]) -> Mapping[str, Mapping[str, Takes]]:
        """What each table takes in these columns, where it is there and has them. One that does not answer holds no
        landing back: records then say the types, and its merge refuses one that it cannot have."""
        found: dict[str, Mapping[str, Takes]] = {}
        for destination in self.destinations():
            try:
                found[destination.name] = destination.takes(names)
            except Unavailable as problem:
                _LOG.warning("%s does not say which columns it has: %s", destination.name, problem)
        return found

    def registries(self) -> dict[str, SchemaRegistry]:
        """The Schema Registries that the source names, by connection."""
        names = self.spec.source.registries
        return {name: self.connections.opened(name, SchemaRegistryConnection, SchemaRegistry) for name in names}

    @property
    def group(self) -> str:
        """The consumer group that follows the tables; members of a pipeline share one."""
        return f"batchmerge-{self.part_of or self.name}"

    def group_of_role(self, role: str) -> str:
        """The consumer group, and the id of transactions, of one that publishes for the pipeline."""
        return f"batchmerge-{self.name}/{role}"

    @property
    def run_properties(self) -> dict[str, str]:
        return {PREFIX + "run-id": self.run_id}

    @property
    def tables(self) -> list[Table]:
        """Those of the pipeline file, and those that records have named."""
        return all_tables(self.spec, self.names.values())

    def table(self, entry: int) -> Table:
        """The table that an entry of the file stands for: itself, or the one of the name that this is about."""
        table, name = self.spec.tables[entry], self.only
        return table if name is None else named_table(table, self.names[name])

    def destinations(self) -> list[Destination]:
        return [self.destination_of(table) for table in self.tables]

    def destination(self, table: str) -> Destination:
        """The destination of that name: the table's, or kind and table where systems share the table's name."""
        found = [d for d in self.destinations() if d.table.is_called(table)]
        if len(found) != 1:
            problem = "more than one table" if found else "no table"
            raise ConfigurationError(
                f"pipeline {self.name} has {problem} {table!r}",
                remedy=f"name one of {', '.join(repr(d.name) for d in found or self.destinations())}",
            )
        return found[0]

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

    def interrupt(self, role: str) -> None:
        """Stops what runs in a role's session; nothing if none is open. Called from another thread."""
        self.sessions.interrupt(role)

    def stop(self) -> None:
        """Stops what runs in any session of the pipeline."""
        self.sessions.interrupt_all()

    def land_in_time(self, work: Callable[[], T], done: Sized = ()) -> T:
        """What a landing does, within the file's limit for a batch.

        Args:
            done: batches that it has landed; the time begins again with each further one.

        Raises:
            TimeLimitReached: no answer in time.
        """
        return with_timeout(self.spec.batch.time_limit_seconds, f"landing of {self.name}", work, self.stop, done)

    def merge_context(self, destination: Destination) -> MergeContext:
        """What a merge into this destination works with."""

        def session() -> SparkSession:
            return self.spark(destination.name, self.intermediate.catalog, destination)

        return MergeContext(self.name, destination.spec, session, self.intermediate, self.run_id, self.one_task)

    def topic_state(self) -> TopicState:
        """What Kafka has for the pipeline's topics now."""
        seen, self.seen = self.seen, None
        if seen is not None:
            return seen
        return topic_state(self.kafka, self._topics())

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
        """Refuses to go on under changed keys, op mapping or order (`jobs.lineage.check_meaning`)."""
        check_meaning(self.name, self.spec.meaning_hash, committed, batches)

    def offsets_at(self, partitions: list[TopicPartition], instant: datetime) -> Offsets:
        """Of each partition the first offset at or after this time; its end where there is none."""
        return self.kafka.offsets_at(partitions, int(instant.timestamp() * 1000))

    def destination_of(self, table: Table) -> Destination:
        """The destination of an entry of the pipeline file; tables in different systems may have the same name."""
        return kind_of(table).open(self.name, self.spec_of(table), table, self.connections)

    def spec_of(self, table: Table) -> PipelineSpec:
        """The pipeline as the table sees it: of the columns that records have brought, those that concern it."""
        return with_own_columns(self.spec, self._declared, table)
