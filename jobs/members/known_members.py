"""Which members a pipeline has (`source.for_each`, `new_tables`): by its file, by Kafka and by the data folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from jobs.events.shared_events import SharedEvents
from jobs.landing.reads import Reads, read_alone
from jobs.members.known_topics import (
    known_member,
    known_members,
    known_topics,
    remember,
    remember_if_possible,
    seen_names,
)
from jobs.members.topics import Seen, missing, states_of
from jobs.offsets import TopicPartition
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from jobs.spark.sessions import OwnSessions, Sessions
from jobs.spark.spark_tasks import OneTask
from jobs.spec.members import Expansion, Member, expand, is_read
from jobs.spec.pipeline import PipelineSpec
from resources.connections import Connections, KafkaConnection
from resources.errors import BatchmergeError, ConfigurationError, TopicMissing
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_offsets


@dataclass
class KnownMembers:
    """The members of a pipeline, each opened as a pipeline if wanted.

    Attributes:
        topics: only these; empty: all.
    """

    name: str
    spec: PipelineSpec
    connections: Connections
    run_id: str = "by-hand"
    topics: Collection[str] = ()

    def known(self) -> list[Member]:
        """The members that are known; where records name tables, one for each name. Kafka is asked only if the data
        folder, which may be this process's own, has no topics: to do nothing then would look like success.

        Raises:
            ConfigurationError, TopicMissing: one of `topics` is none. BatchmergeError: Kafka does not answer.
        """
        source = self.spec.source
        if source.for_each and source.pattern and not seen_names(self.name):
            self.look()
        return self.remembered()

    def remembered(self) -> list[Member]:
        """As `known`, without asking Kafka."""
        if self.spec.new_tables:
            names = Pipeline(self.name, self.spec, self.connections).names
            self._require_names(names)
            found = [Member(name, self.name, self.spec) for name in names]
        else:
            expansion, known = known_members(self.name, self.spec), set(known_topics(self.name, self.spec))
            self._require_topics(known, expansion)
            found = list(expansion.members)
        return [m for m in found if self._wanted(m.key)]

    def _require_topics(self, known: Collection[str], expansion: Expansion) -> None:
        """Raises ConfigurationError, TopicMissing: one of `topics` is none, so that its steps would do nothing."""
        refused = {one.topic: one for one in expansion.refused}
        for topic in self.topics:
            self.member(topic)
            if topic in refused:
                raise refused[topic].error(self.name)
            if topic not in known:
                raise missing(topic, self.name)

    def _require_names(self, known: Collection[str]) -> None:
        for name in self.topics:
            if name not in known:
                raise ConfigurationError(
                    f"no record has brought the name {name}",
                    where=f"pipeline {self.name}",
                    remedy=f"name one of: {', '.join(sorted(known)[:20]) or 'none is known yet'}",
                )

    def all_known(self) -> list[Member]:
        """All known members, whatever `topics` says."""
        return replace(self, topics=()).known() if self.topics else self.known()

    def member(self, topic: str) -> Member:
        """The member of this topic. Raises ConfigurationError if there is none, or none that can be."""
        return known_member(self.name, self.spec, topic)

    def open(
        self,
        member: Member,
        sessions: Sessions | None = None,
        reads: Reads = read_alone,
        one_task: OneTask | None = None,
        events: SharedEvents | None = None,
    ) -> Pipeline:
        """Opens the member as a pipeline. Where records name tables, it is the whole pipeline, limited to one name."""
        named = self.spec.new_tables is not None
        return Pipeline(
            member.name,
            member.spec,
            self.connections,
            self.run_id,
            None if named else self.name,
            sessions or OwnSessions(),
            only=member.key if named else None,
            reads=reads,
            one_task=one_task or OneTask(),
            events=events,
        )

    def look(self) -> Seen:
        """Lists and describes all topics in a few questions to Kafka, and remembers those that are new.

        Raises:
            TopicMissing: there is none, or not one of `topics`. ConfigurationError: one of `topics` is not read.
            StorageError: topics are new, and the data folder cannot be written. BatchmergeError: Kafka does not answer.
        """
        kafka = self._kafka
        there = kafka.topic_names()
        matching = [topic for topic in sorted(there) if is_read(self.spec, topic)]
        # Topics that the file lists are known without the folder.
        keep = remember if self.spec.source.pattern else remember_if_possible
        appeared = keep(self.name, matching, self._landed_already)
        expansion = known_members(self.name, self.spec)
        absent = [topic for topic in self.spec.source.topics if topic not in there and is_read(self.spec, topic)]
        failed: dict[str, BatchmergeError] = {topic: missing(topic, self.name) for topic in absent}
        self._require_topics({*there, *known_topics(self.name, self.spec)}, expansion)
        if not matching and not absent:
            raise TopicMissing(
                f"no topic matches {self.spec.source.pattern!r}",
                where=f"connection {kafka.name}",
                remedy="check `source.pattern` and `overrides`",
            )
        failed |= {refused.topic: refused.error(self.name) for refused in expansion.refused if refused.topic in there}
        members = [m for m in expansion.members if m.key in there and self._wanted(m.key)]
        states, unread = states_of(kafka, [m.key for m in members])
        wanted = {topic: problem for topic, problem in {**failed, **unread}.items() if self._wanted(topic)}
        return Seen([m for m in members if m.key in states], states, wanted, appeared)

    def _landed_already(self, topics: Sequence[str]) -> set[str]:
        """The topics with a landed table, among those that would begin elsewhere if they appeared later."""
        begin = [m for m in expand(self.name, self.spec, topics).members if m.spec.source.start == "latest"]
        return {member.key for member in begin if self.open(member).intermediate.exists()}

    def ends(self, members: Sequence[Member]) -> dict[str, TopicState]:
        """What Kafka has for these members now, by key; without those that Kafka says nothing of."""
        try:
            if self.spec.new_tables:
                state = Pipeline(self.name, self.spec, self.connections).topic_state()
                return dict.fromkeys((member.key for member in members), state)
            return states_of(self._kafka, [member.key for member in members])[0]
        except BatchmergeError:
            return {}

    def group_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """How far all tables are, by the consumer group of the pipeline."""
        return group_offsets(self._kafka, self.spec.control.group(self.name), partitions)

    @property
    def _kafka(self) -> KafkaCluster:
        return self.connections.opened(self.spec.source.connection, KafkaConnection, KafkaCluster)

    def _wanted(self, topic: str) -> bool:
        return not self.topics or topic in self.topics
