"""The chunks of a revising batch for an append table; the inserts skip records that the table already has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
        spans: dict[tuple[TopicPartition, str], Piece] = {}
        for row in self.context.spark.sql(text, args={"first": first, "last": last}).collect():
            tp = TopicPartition(row["topic"], row["partition"])
            batch, topic_id = row["batch"], ids.get(row["batch"], {}).get(tp.topic, "")
            known = spans.get((tp, topic_id), Piece(tp, topic_id, Span(row["first"], row["last"]), 0, batch, batch))
            span = Span(min(known.span.first, row["first"]), max(known.span.last, row["last"]))
            count, first, last = known.rows + row["rows"], min(known.first, batch), max(known.last, batch)
            spans[tp, topic_id] = Piece(tp, topic_id, span, count, first, last)
        for piece in spans.values():
            step = rows if piece.rows > rows else piece.span.last - piece.span.first + 1
            for start in range(piece.span.first, piece.span.last + 1, step):
                part = Span(start, min(start + step - 1, piece.span.last))
                yield replace(piece, span=part, rows=min(piece.rows, rows))


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
