"""Chunks: the pieces of a batch that are inserted by one statement each, the same at every try."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.batch import Batch
from jobs.destinations.clickhouse.transitions import Span
from jobs.offsets import OffsetRange, TopicPartition


@dataclass(frozen=True)
class Chunk:
    """Rows of one topic-partition in a range of offsets.

    Attributes:
        dead: the rows go to the dead letters: they can be neither inserted nor dropped without losing or doubling.
    """

    tp: TopicPartition
    span: Span
    dead: bool = False

    def token(self, pipeline: str, table: str, commit_id: str) -> str:
        """The deduplication token: the same chunk of the same batch is inserted once."""
        return f"{pipeline}/{table}/{commit_id}/{self.tp}/{self.span}"


def whole(piece: OffsetRange) -> Span:
    """A range ``[start, end)``, not empty, with both ends included."""
    return Span(piece.start, piece.end - 1)


def cut(tp: TopicPartition, span: Span, rows: int) -> list[Chunk]:
    """Chunks of `rows` offsets from the start of the range; the last may be smaller."""
    starts = range(span.first, span.last + 1, rows)
    return [Chunk(tp, Span(first, min(first + rows - 1, span.last))) for first in starts]


def count(batch: Batch, rows: int) -> int:
    """How many chunks a batch has."""
    return sum(-(-len(piece) // rows) for piece in batch.ranges.values())
