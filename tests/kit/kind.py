"""What the behaviour suite has to know of a kind of destination, and its way into tables past the product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, get_args

from jobs.destinations.kind import Capabilities
from jobs.destinations.registry import kinds
from jobs.spec.tables import Mode
from resources.connections import Connections
from tests.kit.model import Row

USUAL = ("id", "name", "amount")

# What a kind may lack.
DELETE_MODE = "mode delete"
UNCHANGED_COLUMNS = "columns that a change leaves out"
TEXT_ORDER = "an order by text"


class KindUnderTest:
    """One kind of destination under test.

    Attributes:
        name: `kind` in a pipeline file.
        service: the local service that it needs beside those of every test.
        options: of each of its tables in a pipeline file.
        layouts: options that a table's rows must not depend on.
        ways: options by which a merge is made in another way.
        lacks: what it cannot do, each with words of the sentence that refuses it.
        unrepresentable: a column's type and a value that landing takes and a table of this kind cannot hold; None:
            it holds whatever can be landed.
        letters_written: the boundary after which its side table has the letters of rows that are not committed yet.
        mended: options of a table that holds it, as it is or set to fit.
        maintained: its tables need upkeep.
        by_workers: rows get into its tables from Spark's workers, not through the run.
        state_in_table: the committed state is part of the table, and is dropped with it.
        written: the boundary between the data's arrival in the system and the commit.
    """

    name: str
    service: str | None = None
    options: ClassVar[Mapping[str, object]] = {}
    layouts: ClassVar[Sequence[Mapping[str, object]]] = ({},)
    ways: ClassVar[Sequence[Mapping[str, object]]] = ({},)
    lacks: ClassVar[Mapping[str, str]] = {}
    unrepresentable: tuple[str, object] | None = None
    letters_written: str = ""
    mended: ClassVar[Mapping[str, object]] = {}
    maintained: bool = True
    by_workers: bool = True
    state_in_table: bool = False
    written: str

    def connection(self, home: Path) -> Mapping[str, object] | None:
        """Its entry in the connections file, by its own name; None where `batchmerge up` writes one.

        Args:
            home: a folder for its data.
        """
        del home
        return None

    @property
    def capabilities(self) -> Capabilities:
        return kinds()[self.name].capabilities

    @property
    def modes(self) -> list[Mode]:
        """Those that it has."""
        return [mode for mode in get_args(Mode) if mode in self.capabilities.modes]

    def rows(self, connections: Connections, table: str, columns: Sequence[str] = USUAL) -> list[dict[str, object]]:
        """What a query finds in these columns, in any order."""
        raise NotImplementedError

    def remove(self, connections: Connections, table: str, below: int) -> None:
        """Deletes the rows with a smaller `id`, as a person would."""
        raise NotImplementedError

    def plant(self, connections: Connections, table: str, row: Row) -> None:
        """Inserts a row (id, name, amount), as a person would."""
        raise NotImplementedError

    def drop(self, connections: Connections, table: str) -> None:
        """Drops the table, as a person would."""
        raise NotImplementedError

    def recreate(self, connections: Connections, table: str) -> None:
        """Drops the table and makes it again with the same columns, as a person would."""
        raise NotImplementedError

    def tidy(self, connections: Connections) -> None:
        """Drops what tests have made, where that makes the next ones faster."""
        del connections

    def roll_back(self, connections: Connections, table: str) -> bool:
        """Takes its newest commit back, as a person would; False where its system knows no such thing."""
        del connections, table
        return False
