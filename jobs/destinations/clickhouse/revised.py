"""The chunks of a revising batch for an append table; the inserts skip records that the table already has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Row

from jobs.batch import LandedBatch
from jobs.changes.files import LandedFiles
from jobs.changes.planned_files import PlannedFiles
from jobs.destinations.clickhouse.steps import MOST_PARTITIONS, Chunk
from jobs.destinations.clickhouse.transitions import Span
from jobs.destinations.merge_context import MergeContext
from jobs.offsets import TopicPartition
from sql import render


@dataclass(frozen=True)
class Piece:
    """A bounded range of offsets of a topic-partition, and the batches that landed them first."""

    tp: TopicPartition
    topic_id: str
    span: Span
    rows: int
    first: int
    last: int


@dataclass(frozen=True)
class RevisedRows:
    """The readings in a revising batch of records of some batches.

    Attributes:
        landed: the files of the revising batch.
        known: all landed batches up to it, by which the topic id of a record is known.
        wanted: the batches whose records are wanted; if it contains the revising batch, all its records are.
    """

    context: MergeContext
    landed: LandedFiles
    known: Sequence[LandedBatch]
    revising: LandedBatch
    wanted: Sequence[LandedBatch]

    @cached_property
    def files(self) -> PlannedFiles:
        return PlannedFiles.of(self.landed, [self.revising])

    def chunks(self, rows: int) -> list[Chunk]:
        found = sorted(self._pieces(rows), key=lambda p: (p.topic_id, p.tp, p.span))
        return [self._chunk(n, part) for n, part in enumerate(_groups(found, rows))]

    def _chunk(self, number: int, pieces: Sequence[Piece]) -> Chunk:
        return Chunk(
            name=f"{self.revising.number}/{number}",
            first=min(p.first for p in pieces),
            last=max(p.last for p in pieces),
            spans={p.tp: p.span for p in pieces},
            topic_ids={p.tp.topic: p.topic_id for p in pieces},
            is_part=True,
        )

    def _pieces(self, rows: int) -> Iterator[Piece]:
        """The spans of the batch's records by topic id and partition, each with at most `rows` records."""
        ids = {b.number: b.batch.topic_ids for b in self.known}
        whole = self.revising.number in [b.number for b in self.wanted]
        first, last = (0, self.revising.number) if whole else (self.wanted[0].number, self.wanted[-1].number)
        text = render(
            "spark",
            "revised_spans",
            table=self.context.intermediate.path,
            snapshot=self.landed.snapshot,
            revision=self.revising.number,
        )
        found = defaultdict[tuple[TopicPartition, str], list[Row]](list)
        for row in self.context.spark.sql(text, args={"first": first, "last": last}).collect():
            tp = TopicPartition(row["topic"], row["partition"])
            found[tp, ids.get(row["batch"], {}).get(tp.topic, "")].append(row)
        for (tp, topic_id), read in found.items():
            batches, count = [row["batch"] for row in read], sum(row["rows"] for row in read)
            begin, end = min(row["first"] for row in read), max(row["last"] for row in read) + 1
            step = rows if count > rows else end - begin
            for start in range(begin, end, step):
                span = Span(start, min(start + step, end) - 1)
                yield Piece(tp, topic_id, span, min(count, rows), min(batches), max(batches))


def _groups(pieces: Sequence[Piece], rows: int) -> Iterator[list[Piece]]:
    """Groups of pieces: of one topic id, one piece a topic-partition, and together at most `rows` records."""
    group: list[Piece] = []
    for piece in pieces:
        of_another = bool(group) and group[0].topic_id != piece.topic_id
        full = sum(p.rows for p in group) + piece.rows > rows or len(group) == MOST_PARTITIONS
        if group and (of_another or full or group[-1].tp == piece.tp):
            yield group
            group = []
        group.append(piece)
    if group:
        yield group
