"""What the behaviour suite has to know of a kind of destination, and its way into tables past the product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, get_args

from jobs.destinations.base import Destination
from jobs.destinations.kind import Capabilities
from jobs.destinations.registry import kinds
from jobs.spec.tables import Mode
from resources.connections import Connections
from tests.kit.model import Row
from tests.kit.records import COLUMNS, Record, put

USUAL = ("id", "name", "amount")


class KindUnderTest:
    """One kind of destination under test.

    Attributes:
        name: `kind` in a pipeline file.
        service: the local service that it needs beside those of every test.
        options: of each of its tables in a pipeline file.
        bulk: those of a table that gets many rows at a time, instead.
        layouts: options that a table's rows must not depend on.
        layouts_by_ref: such options that name a column `ref`, a UUID.
        ways: options by which a merge is made in another way.
        names: of tables that topics are called.
        unrepresentable: a column's type and a value that landing takes and a table of this kind cannot hold; None:
            it holds whatever can be landed.
        fitting: what Spark makes of that column `odd` so that the table holds it.
        dead_letters_written: the boundary after which its side table has the dead letters of uncommitted rows.
        accepting: options of a table that holds it, as it is or adjusted.
        needs_state: modes of which a table with rows whose state was lost is refused: its rows would come twice.
        distinguishing_columns: metadata columns that distinguish rows of a recreated topic from older ones
            (`tells_topics_apart`).
        written: the boundary between the data's arrival in the system and the commit.
        replayed: the boundaries of a replay of landed batches.
        revised: the boundary of a merge of a batch that revises others; None: `written`.
        committed: that after a commit which only moves the offsets.
    """

    name: str
    service: str | None = None
    options: ClassVar[Mapping[str, object]] = {}
    bulk: ClassVar[Mapping[str, object]] = {}
    layouts: ClassVar[Sequence[Mapping[str, object]]] = ({},)
    layouts_by_ref: ClassVar[Sequence[Mapping[str, object]]] = ({},)
    ways: ClassVar[Sequence[Mapping[str, object]]] = ({},)
    unrepresentable: tuple[str, object] | None = None
    names: ClassVar[Sequence[str]] = ("raw-orders", "1_raw")
    fitting: str = ""
    dead_letters_written: str = ""
    accepting: ClassVar[Mapping[str, object]] = {}
    needs_state: ClassVar[Sequence[Mode]] = ()
    distinguishing_columns: ClassVar[Sequence[str]] = ("batch",)
    written: str
    replayed: ClassVar[Sequence[str]]
    revised: str | None = None
    committed: str

    def connection(self, home: Path) -> Mapping[str, object] | None:
        """The kind's entry in the connections file, by its name; None: `batchmerge up` writes one.

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
        """The modes that tables of the kind have."""
        return [mode for mode in get_args(Mode) if mode in self.capabilities.modes]

    @property
    def odd_columns(self) -> dict[str, str]:
        """The usual columns, and `odd`, of which the kind cannot store all landed values."""
        assert self.unrepresentable
        return {**COLUMNS, "odd": self.unrepresentable[0]}

    def odd(self, key: int) -> Record:
        """A record that a table with these columns refuses."""
        assert self.unrepresentable
        return put(key, "odd", odd=self.unrepresentable[1])

    def rows(self, connections: Connections, table: str, columns: Sequence[str] = USUAL) -> list[dict[str, object]]:
        """The rows that a query finds, in these columns and any order."""
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
        """Drops what tests have made, if that makes the next tests faster."""
        del connections

    def roll_back(self, connections: Connections, table: str, commits: int = 1) -> None:
        """Rolls the table back, as a person would, but not before its first commit (`rolls_back`)."""
        raise NotImplementedError

    def rename(self, connections: Connections, table: str, name: str) -> None:
        """Gives the table another name, as a person would (`rolls_back`)."""
        raise NotImplementedError

    def lose_state(self, connections: Connections, destination: Destination) -> None:
        """Removes the committed state that is kept beside it (not where it is `state_in_table`)."""
        raise NotImplementedError
