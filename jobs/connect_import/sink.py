"""What `batchmerge import` asks of Kafka Connect sinks, and which there are: each kind knows those of its system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from jobs.connect_import import connect
from jobs.connect_import.chain import Chain
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.going_on import GoingOn
from jobs.connect_import.known import KnownTable
from jobs.connect_import.options import Options
from jobs.connect_import.placing import Placing
from jobs.destinations.registry import kinds
from resources.connections import Connections
from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster
from resources.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]


class Sink(ABC):
    """The sinks of one system (`Kind.sink`).

    Attributes:
        classes: `connector.class` of each.
        options: what becomes of their options.
        tombstones_delete: in tables with deletes, a record without a value deletes the row of its key.
    """

    classes: ClassVar[Sequence[str]]
    options: ClassVar[Options]
    tombstones_delete: ClassVar[bool] = False

    @abstractmethod
    def place(self, configuration: Configuration, named: list[str]) -> Placing:
        """The tables that topics go to; `named` are those that are to be imported, if not all."""

    @abstractmethod
    def tables(
        self, configuration: Configuration, placed: Placing, is_known: bool
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """The `tables` part, and what a person has to look at; `is_known`: the tables themselves say it."""

    @abstractmethod
    def document(self, configuration: Configuration, placed: Placing, going_on: GoingOn) -> dict[str, Any]:
        """Further parts of the pipeline file."""

    @abstractmethod
    def connections(self, configuration: Configuration) -> dict[str, dict[str, Any]]:
        """Entries for the connections file, secrets as references to the environment."""

    @abstractmethod
    def known(self, connections: Connections) -> Callable[[str], KnownTable | None]:
        """Looks for a table that the connector has filled, by its name."""

    def changes(
        self, configuration: Configuration, key: Mapping[str, str], chain: Chain, placed: Placing
    ) -> tuple[dict[str, Any], dict[str, str] | None]:
        """The `changes` part of a sink whose keys are the records' keys, and the columns of these.

        They are left to the records where they are not given; None: the record's key is not read.
        """
        del configuration, key, chain, placed
        return {}, None

    def key_column(self, configuration: Configuration) -> str:
        """The column that has the record's whole key; empty where there is none."""
        del configuration
        return ""

    def record_column(self, configuration: Configuration) -> str:
        """The column that says which record a row is from; empty where there is none."""
        del configuration
        return ""

    def kept(self, configuration: Configuration) -> list[str]:
        """Columns that rows need even where the tables do not have them."""
        del configuration
        return []

    def named_columns(self, configuration: Configuration, chain: Chain, placed: Placing) -> list[str]:
        """Columns that the connector names, so that records must have them."""
        del configuration, chain, placed
        return []

    def fill_key(self, configuration: Configuration, key: Mapping[str, str], chain: Chain) -> list[str]:
        """Makes the column that has the record's key, where that is no key of the table; what is to be done."""
        del configuration, key, chain
        return []

    def group(self, configuration: Configuration) -> str:
        """The consumer group that the sink itself goes by."""
        return connect.group(configuration)

    def stopped_at(
        self, configuration: Configuration, cluster: KafkaCluster, connections: Connections, committed: Offsets
    ) -> Offsets:
        """Where it stopped, by what it keeps besides its group's offsets.

        Raises:
            SourceError: something that it has begun is not finished.
        """
        del configuration, cluster, connections
        return committed


def sink_of(configuration: Configuration) -> Sink:
    """Who knows the connector.

    Raises:
        ConfigurationError: nobody does.
    """
    found = {name: sink for kind in kinds().values() if (sink := kind.sink()) for name in sink.classes}
    name = configuration.text("connector.class")
    if name not in found:
        raise ConfigurationError(
            f"{name} is not a connector that can be imported",
            where=configuration.name,
            remedy=f"it must be one of {', '.join(found)}",
        )
    return found[name]
