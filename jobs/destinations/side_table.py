"""The side table of a destination table, with the landed rows that it refused (`refusal`).

`<table>__dead_letters` has one row for each dead letter (`refusal.DEAD_LETTER_ROW`) and is created with the first one.
Each kind writes it in its own way; dead letters have to be there before their batch is committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from jobs.dead_letters.dead_letter import DeadLetter, DeadLetterGroup
from jobs.destinations.refusal import DEAD_LETTER_ROW
from jobs.destinations.refused_rows import as_group, as_letter

Parameters = Mapping[str, int | str | Sequence[str]]
_ALL = (0, 2**62)
PLACES = pa.schema([DEAD_LETTER_ROW.field(name) for name in ("topic", "partition", "offset", "batch")])
WRITTEN = pa.schema([*PLACES, DEAD_LETTER_ROW.field("topic_id"), DEAD_LETTER_ROW.field("attempt")])


class SideTable(ABC):
    """Reads and deletes the dead letters of one table on one endpoint. Travels to Spark's tasks, which read rows."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The side table's name, for people."""

    @property
    @abstractmethod
    def stage(self) -> str:
        """The destination's name, which is the stage of its dead letters."""

    @abstractmethod
    def rows(self, template: str, given: Parameters, **said: object) -> Sequence[Mapping[str, Any]]:
        """The rows of a SELECT on the side table (a template of the dialect); none if the table does not exist."""

    @abstractmethod
    def change(self, template: str, given: Parameters, **said: object) -> None:
        """Runs a statement on the side table."""

    def dead_letters(self, most: int, values: bool, batches: tuple[int, int] | None = None) -> Iterator[DeadLetter]:
        """At most `most` dead letters of these batches (first, last; both included), in their order."""
        first, last = batches or _ALL
        for row in self.rows("side_table_rows", {"most": most, "first": first, "last": last}, values=values):
            yield as_letter(row, self.name, self.stage)

    def groups(self) -> Iterator[DeadLetterGroup]:
        for row in self.rows("side_table_groups", {}):
            yield as_group(row, self.name, self.stage)

    def by_batch(self) -> Mapping[int, int]:
        """The number of refused rows by batch."""
        return {int(row["batch"]): int(row["records"]) for row in self.rows("side_table_batches", {})}

    def places(self) -> Iterator[pa.Table]:
        """`PLACES` of the refused rows; twice if two attempts have written the row."""
        yield from (table.select(PLACES.names) for table in self.written())

    def written(self) -> Iterator[pa.Table]:
        """`WRITTEN`: which attempt has written a dead letter of which record."""
        found = [dict(row) for row in self.rows("side_table_written", {})]
        yield pa.Table.from_pylist(found, schema=WRITTEN)

    def attempts(self, first: int = _ALL[0], last: int = _ALL[1]) -> Sequence[str]:
        """The attempts that have written dead letters of these batches so far."""
        return [row["attempt"] for row in self.rows("side_table_attempts", {"first": first, "last": last})]

    def forget(self, attempts: Sequence[str], first: int = _ALL[0], last: int = _ALL[1]) -> None:
        """Deletes these attempts' dead letters of these batches: another attempt has checked all rows again."""
        if attempts:
            given: Parameters = {"first": first, "last": last, "attempts": attempts}
            self.change("side_table_forget", given, by_place=False)

    def forget_places(self, places: Sequence[str], attempts: Sequence[str], newest_by: str | None) -> None:
        """Deletes these attempts' dead letters at these places: another attempt has checked the records again.

        Args:
            places: ``batch/topic-partition@offset`` of dead letters.
            newest_by: this attempt has checked only the newest change of each key. If it has refused that change, the
                key's other dead letters are kept: the table still lacks those changes too.
        """
        if newest_by is not None:
            # A query of its own: some systems refuse a DELETE with a subquery on the same table.
            judged = self.rows("side_table_outdated", {"places": places, "attempts": attempts, "by": newest_by})
            places = [row["place"] for row in judged]
        if places:
            self.change("side_table_forget", {"places": places, "attempts": attempts}, by_place=True)
