"""Finds the tables that a connector has filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs.connect_import.configuration import Configuration
from jobs.connect_import.known import KnownTable
from jobs.connect_import.sink import sink_of
from resources.connections import Connections, KafkaConnection
from resources.kafka import KafkaCluster


@dataclass(frozen=True)
class Filled:
    """
    Attributes:
        tables: by name.
        topics: of the connector, if each has its own table.
    """

    tables: Mapping[str, KnownTable] = field(default_factory=dict)
    topics: Sequence[str] = ()


NOTHING = Filled()


def find(configuration: Configuration, connections: Connections, named: list[str]) -> Filled:
    """The connector's tables that exist."""
    sink = sink_of(configuration)
    placed = sink.place(named)
    topics: list[str] = []
    if placed.each:
        cluster = KafkaCluster("kafka", connections.get("kafka", KafkaConnection))
        topics = cluster.topics(configuration.items("topics"), configuration.text("topics.regex") or None)
    names = [placed.table_of(topic) for topic in topics] if placed.each else list(placed.tables)
    look = sink.known(connections)
    found = {name: look(name) for name in names if name and "{" not in name}
    return Filled({name: table for name, table in found.items() if table}, topics)
