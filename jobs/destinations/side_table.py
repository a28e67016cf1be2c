"""The side table of a destination table: landed rows that it refuses (`refusal`), as whoever asks for them sees them.

`<table>__dead_letters` has one row a dead letter (`refusal.DEAD_LETTER_ROW`) and is made with the first of them. How
they get into it each kind decides: they have to be there before their batch is committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from jobs.dead_letters.dead_letter import DeadLetter, DeadLetterGroup
from jobs.destinations.refusal import DEAD_LETTER_ROW
from jobs.destinations.refused_rows import as_group, as_letter

Parameters = Mapping[str, int | str | Sequence[str]]
_ALL = (0, 2**62)
PLACES = pa.schema([DEAD_LETTER_ROW.field(name) for name in ("topic", "partition", "offset", "batch")])
WRITTEN = pa.schema([*PLACES, DEAD_LETTER_ROW.field("topic_id"), DEAD_LETTER_ROW.field("attempt")])


class SideTable(ABC):
    """Reads and tidies the dead letters of one table; of a table on several endpoints those of one of them.

    It travels to Spark's tasks, which read the rows.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The side table's, for people."""

    @property
    @abstractmethod
    def stage(self) -> str:
        """The destination's name, which its dead letters have as their stage."""

    @abstractmethod
    def rows(self, template: str, given: Parameters, **said: object) -> Sequence[Mapping[str, object]]:
        """The rows of a SELECT on the side table (a template of the dialect); none where there is no such table."""

    @abstractmethod
    def change(self, template: str, given: Parameters, **said: object) -> None:
        """Runs a statement on the side table."""

    def dead_letters(self, most: int, values: bool, batches: tuple[int, int] | None = None) -> Iterator[DeadLetter]:
        """At most so many of these batches (the first, the last), in their order."""
        first, last = batches or _ALL
        for row in self.rows("side_table_rows", {"most": most, "first": first, "last": last}, values=values):
            yield as_letter(row, self.name, self.stage)

    def groups(self) -> Iterator[DeadLetterGroup]:
        for row in self.rows("side_table_groups", {}):
            yield as_group(row, self.name, self.stage)

    def by_batch(self) -> Mapping[int, int]:
        """How many rows are refused, by batch."""
        return {int(str(row["batch"])): int(str(row["records"])) for row in self.rows("side_table_batches", {})}

    def places(self) -> Iterator[pa.Table]:
        """`PLACES`: where the rows come from that are refused; one twice that two attempts have written."""
        yield from (table.select(PLACES.names) for table in self.written())

    def written(self) -> Iterator[pa.Table]:
        """`WRITTEN`: which attempt has a dead letter of which record."""
        found = [dict(row) for row in self.rows("side_table_written", {})]
        yield pa.Table.from_pylist(found, schema=WRITTEN)

    def attempts(self, first: int = _ALL[0], last: int = _ALL[1]) -> Sequence[str]:
        """Who has written dead letters of these batches so far."""
        return [str(row["attempt"]) for row in self.rows("side_table_attempts", {"first": first, "last": last})]

    def forget(self, attempts: Sequence[str], first: int = _ALL[0], last: int = _ALL[1]) -> None:
        """Takes away what these attempts have written of these batches: all of it was judged by others."""
        if attempts:
            given: Parameters = {"first": first, "last": last, "attempts": attempts}
            self.change("side_table_forget", given, by_place=False)

    def forget_places(self, places: Sequence[str], attempts: Sequence[str], newest_by: str | None) -> None:
        """Takes away what these attempts have written of records that were judged by others, wherever they stand.

        Args:
            places: ``batch/topic-partition@offset`` of dead letters.
            newest_by: this attempt has judged the newest change of each key only. Where it has refused that, the key's
                other dead letters stay: those changes are still not in the table.
        """
        if newest_by is not None:
            # First: a system may refuse a statement that takes rows away by what other rows of the table say.
            judged = self.rows("side_table_outdated", {"places": places, "attempts": attempts, "by": newest_by})
            places = [str(row["place"]) for row in judged]
        if places:
            self.change("side_table_forget", {"places": places, "attempts": attempts}, by_place=True)
