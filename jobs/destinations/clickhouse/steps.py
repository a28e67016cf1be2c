"""Steps: landed batches that are committed together; chunks: what one statement inserts. Pure and deterministic.

The lease fixes a step when it is begun: its first and last batch, and the number of offsets of a chunk. Landed batches
are immutable, so a retry cuts the same batches into the same chunks. If the file's `chunk_rows` was reduced since, the
same batches are begun again as another step.

    batches   ┌1┬2┬3┬4┐ ┌────5────┐ ┌6┬7┐     small ones share a chunk, a large one is cut by topic-partition
    chunks    └───a───┘ └b┴──c──┴d┘ └─e─┘     and offsets: large partitions are split, small ones share a chunk
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import inf

from jobs.batch import Batch, LandedBatch
from jobs.destinations.clickhouse.state import Lease
from jobs.destinations.clickhouse.transitions import Span
from jobs.groups import groups
from jobs.lineage import choices
from jobs.offsets import TopicPartition, total
from resources.errors import LineageBroken

Spans = dict[TopicPartition, Span]

# The most topic-partitions of a chunk, and the most topics: they are URL parameters of its statement. A parameter may
# have 128 KB as it is encoded (a number has up to 22 characters, a topic 258), and the URL 1 MB.
MOST_PARTITIONS = 5000
_MOST_TOPICS = 500


@dataclass(frozen=True)
class Chunk:
    """The rows that one statement inserts.

    Attributes:
        name: unique in the step, and the same at every retry.
        first, last: the batches, both included.
        spans: the offsets that it covers of each topic-partition.
        topic_ids: Kafka's ids of the topics.
        is_part: it has only these offsets of the batches, not all.
    """

    name: str
    first: int
    last: int
    spans: Spans
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    is_part: bool = False


@dataclass(frozen=True)
class Step:
    """Batches whose rows are inserted between one BEFORE and one AFTER, and committed at once.

    Attributes:
        chunk_rows: the number of offsets of a chunk.
    """

    batches: tuple[LandedBatch, ...]
    chunk_rows: int

    @property
    def first(self) -> int:
        return self.batches[0].number

    @property
    def last(self) -> int:
        return self.batches[-1].number

    @property
    def batch(self) -> Batch:
        """The last batch, whose number and commit id are committed."""
        return self.batches[-1].batch

    @property
    def resets(self) -> bool:
        """Whether it moves offsets and has no rows. Always a step of its own: within a step offsets only grow."""
        return self.batch.continues is not None

    @property
    def revises(self) -> bool:
        """Whether it is a batch of records that were read again, without offsets. Always a step of its own."""
        return self.batch.revises is not None

    @cached_property
    def spans(self) -> Spans:
        """All offsets of the step."""
        return _spans([b.batch for b in self.batches])

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        return tuple(c for run in _runs(self.batches, self.chunk_rows) for c in self._cut(run))

    def _cut(self, run: Sequence[LandedBatch]) -> Iterator[Chunk]:
        spans = _spans([b.batch for b in run])
        first, last = run[0].number, run[-1].number
        size = sum(total(b.batch.ranges) for b in run)
        # Only a single batch can be larger than a chunk; the spans of several may have gaps, which are not rows.
        parts = list(_packed(spans, self.chunk_rows if size > self.chunk_rows else sys.maxsize))
        for part in parts:
            # The name has a digest of the chunk: other versions cut differently, and their tokens mean other rows.
            name = f"{first}-{last}/{_digest(part)}" if len(parts) > 1 else f"{first}-{last}"
            yield Chunk(name, first, last, part, _ids(run[0].batch, part), is_part=len(parts) > 1)


def cut(batches: Sequence[LandedBatch], chunk_rows: int, most_chunks: int) -> list[Step]:
    """Divides batches into steps of at most `most_chunks` chunks; a batch with more chunks is a step of its own."""

    def chunks(run: Sequence[LandedBatch]) -> int:
        return len(Step(tuple(run), chunk_rows).chunks)

    return [
        Step(tuple(chain.from_iterable(runs)), chunk_rows)
        # Each reset alone, as if it were larger than all others together; a batch that revises comes alone anyway.
        for stretch in groups(batches, lambda landed: inf if landed.batch.continues is not None else 0, 0)
        for runs in groups(_runs(stretch, chunk_rows), chunks, most_chunks)
    ]


def left_behind(
    lease: Lease | None, newer: Sequence[LandedBatch], where: str, most_rows: int | None = None
) -> Step | None:
    """The step that another run has begun and not finished, as it was begun.

    Its chunks may be cut to at most `most_rows` offsets, since rows of the step are recognized, or have the same
    version again. None: the very same chunks, for inserts that only tokens deduplicate.

    None if there is no such step, or if it will never be finished: its batches are no longer landed, and the landed
    ones continue from before it, with higher numbers. `found.py` finds what it has inserted.

    Raises:
        LineageBroken: its batches are gone, and a person has to decide how to continue.
    """
    if lease is None or not lease.left_behind:
        return None
    for n, landed in enumerate(newer):
        if landed.batch.commit_id == lease.commit_id:
            return Step(tuple(newer[: n + 1]), min(lease.chunk_rows, most_rows or lease.chunk_rows))
    if newer[-1].number > lease.batch and (lease.state or newer[0].number > lease.batch):
        return None
    remedy = choices(newer[0].batch.pipeline)
    if not lease.state:
        remedy = "nothing was committed yet: drop the table, then fill a new one after `batchmerge offsets forget`"
    raise LineageBroken(
        f"batch {lease.batch} ({lease.commit_id}) was begun and not finished, and it is not landed any more",
        where=where,
        remedy=remedy,
        batch=lease.batch,
    )


def _runs(batches: Sequence[LandedBatch], chunk_rows: int) -> Iterator[list[LandedBatch]]:
    """Groups of consecutive batches that together are no larger than a chunk; a larger batch alone."""
    return groups(batches, lambda landed: total(landed.batch.ranges), chunk_rows)


def _packed(spans: Spans, rows: int) -> Iterator[Spans]:
    """Parts of `rows` offsets each, except the last, and of no more topic-partitions than a statement can have."""
    part, room, topics = Spans(), rows, set[str]()
    for tp, span in sorted(spans.items()):
        rest = span
        while rest.first <= rest.last:
            if not room or len(part) == MOST_PARTITIONS or (len(topics) == _MOST_TOPICS and tp.topic not in topics):
                yield part
                part, room, topics = Spans(), rows, set()
            part[tp] = Span(rest.first, min(rest.last, rest.first + room - 1))
            room -= part[tp].last - rest.first + 1
            topics.add(tp.topic)
            rest = Span(part[tp].last + 1, rest.last)
    if part:
        yield part


def _digest(spans: Spans) -> str:
    return hashlib.sha256(repr(sorted(spans.items())).encode()).hexdigest()[:16]


def _ids(batch: Batch, tps: Iterable[TopicPartition]) -> dict[str, str]:
    """The topic ids of these topic-partitions; a step has one topic of each name."""
    return {topic: batch.topic_ids.get(topic, "") for topic in sorted({tp.topic for tp in tps})}


def _spans(batches: Sequence[Batch]) -> Spans:
    spans: Spans = {}
    for batch in batches:
        for tp, offsets in batch.ranges.items():
            if len(offsets):
                spans[tp] = Span(spans[tp].first if tp in spans else offsets.start, offsets.end - 1)
    return spans
