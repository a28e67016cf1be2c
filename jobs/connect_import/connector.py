"""A connector to import, and the tables that it has filled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from jobs.connect_import.configuration import Configuration
from jobs.connect_import.going_on import GoingOn
from jobs.connect_import.known import KnownTable
from jobs.connect_import.placing import Placing
from jobs.connect_import.sink import Sink, sink_of
from resources.connections import Connections, KafkaConnection
from resources.kafka import KafkaCluster


@dataclass(frozen=True)
class Connector:
    """
    Attributes:
        named: tables to import, if not all.
        known: the tables that it has filled, by name.
        topics: those that it reads.
    """

    sink: Sink
    named: list[str]
    known: Mapping[str, KnownTable]
    topics: Sequence[str]

    @cached_property
    def placed(self) -> Placing:
        return self.sink.place(self.named)

    @cached_property
    def going_on(self) -> GoingOn:
        """The known tables that get records of all topics."""
        return self._going_on(self.placed.tables)

    @cached_property
    def each_topic(self) -> dict[str, GoingOn]:
        """The known tables by topic, if each topic has its own."""
        if not self.placed.each:
            return {}
        names = {topic: self.placed.table_of(topic) for topic in self.topics}
        return {topic: self._going_on([name]) for topic, name in names.items() if name and name in self.known}

    @property
    def is_known(self) -> bool:
        """Whether the columns of every topic are known from its tables."""
        known_topics = len(self.each_topic)
        return bool(self.going_on.tables or known_topics) and known_topics in (0, len(self.topics))

    @property
    def known_columns(self) -> set[str]:
        """The columns of all known tables."""
        return {column for one in (self.going_on, *self.each_topic.values()) for column in one.columns}

    def filled(self, name: str) -> list[KnownTable]:
        """The known tables that the entry of this name in `tables` stands for."""
        return [table for title, table in self.known.items() if self.placed.each or title == name]

    def _going_on(self, tables: Iterable[str]) -> GoingOn:
        return GoingOn(self.sink, {name: self.known[name] for name in tables if name in self.known})


def filled_tables(
    configuration: Configuration, connections: Connections, named: list[str]
) -> tuple[dict[str, KnownTable], list[str]]:
    """The connector's tables that exist, by name; and its topics, if each has its own table."""
    sink = sink_of(configuration)
    placed = sink.place(named)
    topics: list[str] = []
    if placed.each:
        cluster = KafkaCluster("kafka", connections.get("kafka", KafkaConnection))
        topics = cluster.topics(configuration.items("topics"), configuration.text("topics.regex") or None)
    names = [placed.table_of(topic) for topic in topics] if placed.each else list(placed.tables)
    look = sink.known(connections)
    found = {name: look(name) for name in names if name and "{" not in name}
    return {name: table for name, table in found.items() if table}, topics
