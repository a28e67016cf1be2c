"""Outdated dead letters: those of records that a replay, or a batch that revises others, checks again.

Records are identified by their coordinates, never by the number of the batch that reads them again. A record keeps
its batch number and `i`, unless retention has removed its batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Row, SparkSession

from jobs.batch import Batch
from jobs.changes.reduction import Reduction
from jobs.destinations.merge_context import MergeContext
from jobs.destinations.shares import rows_of
from jobs.destinations.side_table import WRITTEN, SideTable
from jobs.groups import groups
from resources.spark_errors import spark_errors

# The most characters of parameters in one statement: ClickHouse accepts 128 KB.
_CHARACTERS = 60_000


@dataclass(frozen=True)
class OutdatedDeadLetters:
    """The dead letters that exist before anything is checked again. Those of later runs are kept if this run sleeps.

    Attributes:
        wanted: the changes that are read again.
        batches: the landed batches by number, which distinguish topics of one name.
        known: the attempts that have written dead letters so far.
    """

    spark: SparkSession
    wanted: Reduction
    side: SideTable
    batches: Mapping[int, Batch]
    known: frozenset[str]

    @classmethod
    def of(cls, context: MergeContext, wanted: Reduction, side: SideTable) -> OutdatedDeadLetters:
        batches = {landed.number: landed.batch for landed in context.intermediate.landed().batches}
        return cls(context.spark, wanted, side, batches, frozenset(side.attempts()))

    def forget(self, by: str) -> None:
        """Deletes dead letters of records that attempt `by` has checked, if other attempts wrote them."""
        others = self.known - {by}
        if not others:
            return
        newest_by = by if self.wanted.mode.startswith("upsert") and self.wanted.keys else None
        with spark_errors(self.side.stage):
            judged = self.spark.sql(self.wanted.judged_places, args=dict(self.wanted.parameters))
            written = rows_of(self.spark, [self.side.written], WRITTEN)
            found = written.join(judged, ["topic", "partition", "offset"]).toLocalIterator()
            outdated = (row for row in found if row["attempt"] in others and self._is_of(row))
            dead_letters = ((_place(row), row["attempt"]) for row in outdated)
            for some in groups(dead_letters, _size, _CHARACTERS):
                places, attempts = (sorted(set(values)) for values in zip(*some, strict=True))
                self.side.forget_places(places, attempts, newest_by)

    def _is_of(self, row: Row) -> bool:
        """Whether a dead letter is of the record that was checked, not of one of another topic of that name."""
        if row["batch"] == row["stands_in"]:
            return True
        batch = self.batches.get(row["stands_in"])
        return batch is not None and bool(batch.topic_ids.get(row["topic"]) == row["topic_id"])


def _place(row: Row) -> str:
    return f"{row['batch']}/{row['topic']}-{row['partition']}@{row['offset']}"


def _size(dead_letter: tuple[str, str]) -> int:
    return sum(len(text) + 3 for text in dead_letter)
