"""Letters of records that a replay, or a batch that revises others, judges again: the older ones are not true any more.

Records keep their places, whatever reads them again. So what is judged is told by places, never by the number of the
batch that reads again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession

from jobs.changes.reduction import Reduction
from jobs.destinations.shares import rows_of
from jobs.destinations.side_table import WRITTEN, SideTable
from resources.spark import spark_errors

# Of one statement: a parameter of ClickHouse's takes 128 KB.
_CHARACTERS = 60_000


@dataclass(frozen=True)
class JudgedAgain:
    """The letters that there are before anything is judged: what later runs write is theirs, should this one sleep.

    Attributes:
        wanted: what is read again.
        known: who has written letters so far.
    """

    spark: SparkSession
    wanted: Reduction
    side: SideTable
    known: frozenset[str]

    @classmethod
    def of(cls, spark: SparkSession, wanted: Reduction, side: SideTable) -> JudgedAgain:
        return cls(spark, wanted, side, frozenset(side.attempts()))

    def forget(self, by: str) -> None:
        """Takes the letters away that others than this attempt have written of the records that it has judged."""
        others = self.known - {by}
        if not others:
            return
        newest_by = by if self.wanted.mode.startswith("upsert") and self.wanted.keys else None
        with spark_errors(self.side.stage):
            judged = self.spark.sql(self.wanted.judged_places, args=dict(self.wanted.parameters))
            written = rows_of(self.spark, [self.side.written], WRITTEN)
            found = written.join(judged, "place", "left_semi").toLocalIterator()
            letters = ((row["place"], row["attempt"]) for row in found if row["attempt"] in others)
            for some in _pieces(letters):
                places, attempts = (sorted(set(values)) for values in zip(*some, strict=True))
                self.side.forget_places(places, attempts, newest_by)


def _pieces(letters: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    piece, size = list[tuple[str, str]](), 0
    for letter in letters:
        piece.append(letter)
        size += sum(len(text) + 3 for text in letter)
        if size > _CHARACTERS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
