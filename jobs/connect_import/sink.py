"""The interface of Kafka Connect sinks for `batchmerge import`; each kind implements it for those of its system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from jobs.connect_import import connect
from jobs.connect_import.chain import Chain
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.going_on import GoingOn
from jobs.connect_import.known import KnownTable
from jobs.connect_import.options import Options
from jobs.connect_import.placing import Placing
from jobs.destinations.registry import kinds
from jobs.offsets import Offsets
from resources.connections import Connections
from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster


@dataclass(frozen=True)
class Sink(ABC):
    """A connector of one of a system's sinks (`Kind.sink`); `sink_of` finds it.

    Attributes:
        classes: the sinks' values of `connector.class`.
        options: the translation of the sinks' options.
        defaults: of options whose absence means something to Kafka Connect's own options here.
        tombstones_delete: in tables with deletes, a record without a value deletes the row of its key.
        keeps_coordinates: its kind gives rows the coordinates of their records, whatever the file says.
        times_in: the unit in which it reads JSON numbers as times, if not milliseconds.
        configuration: of the connector, with the defaults.
    """

    classes: ClassVar[Sequence[str]]
    options: ClassVar[Options]
    defaults: ClassVar[Mapping[str, str]] = {}
    tombstones_delete: ClassVar[bool] = False
    keeps_coordinates: ClassVar[bool] = False
    times_in: ClassVar[str] = ""
    configuration: Configuration

    @abstractmethod
    def place(self, named: list[str]) -> Placing:
        """The tables that topics go to; `named` are the tables to import, if not all."""

    @abstractmethod
    def tables(self, placed: Placing, is_known: bool) -> tuple[list[dict[str, Any]], list[str]]:
        """The `tables` part, and what a person has to check; `is_known`: the existing tables are known."""

    @abstractmethod
    def document(self, placed: Placing, going_on: GoingOn) -> dict[str, Any]:
        """Further parts of the pipeline file."""

    @abstractmethod
    def connections(self) -> dict[str, dict[str, Any]]:
        """Entries for the connections file, with secrets as references to the environment."""

    @abstractmethod
    def known(self, connections: Connections) -> Callable[[str], KnownTable | None]:
        """A function that finds a table that the connector has filled, by its name."""

    def changes(
        self, key: Mapping[str, str], chain: Chain, placed: Placing
    ) -> tuple[dict[str, Any], dict[str, str] | None]:
        """The `changes` part, and the columns of the record's key. Default: the records' keys are the tables' keys.

        Columns that are not given are left to the records; None: the record's key is not read.
        """
        del key, chain, placed
        return {}, None

    def key_column(self) -> str:
        """The column with the record's whole key; empty if there is none."""
        return ""

    def record_column(self) -> str:
        """The column with the record's coordinates; empty if there is none."""
        return ""

    def operation_field(self) -> str:
        """The field by which the sink tells a change from another; empty if there is none."""
        return ""

    def kept(self) -> list[str]:
        """Columns that rows need even if the tables lack them."""
        return []

    def named_columns(self, placed: Placing) -> list[str]:
        """Columns that the connector names, so that records must have them."""
        del placed
        return []

    def fill_key(self, key: Mapping[str, str], chain: Chain) -> list[str]:
        """Adds the column with the record's key, if that is not the table's key; returns notes."""
        del key, chain
        return []

    def group(self) -> str:
        """The consumer group of the sink's offsets."""
        return connect.group(self.configuration)

    def stopped_at(self, cluster: KafkaCluster, connections: Connections, committed: Offsets) -> Offsets:
        """The next offsets by the sink's own state, if it has one besides its group's offsets.

        Raises:
            SourceError: the sink has begun something that is not finished.
        """
        del cluster, connections
        return committed


def sink_of(configuration: Configuration) -> Sink:
    """The sink of the connector.

    Raises:
        ConfigurationError: no kind supports the connector.
    """
    found = {name: sink for kind in kinds().values() if (sink := kind.sink()) for name in sink.classes}
    name = configuration.text("connector.class")
    if name not in found:
        raise ConfigurationError(
            f"{name} is not a connector that can be imported",
            where=configuration.name,
            remedy=f"it must be one of {', '.join(found)}",
        )
    return found[name](replace(configuration, defaults=found[name].defaults))
