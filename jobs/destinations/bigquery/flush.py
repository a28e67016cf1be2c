"""What one flush is: which batches, when it is due, in which loads, and what its jobs' labels say. Pure.

Whoever submits the first load of a flush fixes its range and the size of its loads, in the job's labels; everybody else
reads them there. So two runs that see different batches never fill one flush with two ranges. The statement of a merge
says besides, in its first line, which state its table has after it: what has taken effect is known even where its
batches are not landed any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from google.cloud.bigquery import QueryJob

from jobs import offsets
from jobs.batch import LandedBatch
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.state import TableAt
from jobs.lineage import choices
from resources.bigquery import Job, label
from resources.errors import LineageBroken

_PREFIX = "batchmerge-"
_STATE_AFTER = "-- State of the table after this: "


@dataclass(frozen=True)
class Judged:
    """What was refused of the rows of loads, and how many were set to fit; the labels of the jobs say it to others."""

    refused: int = 0
    out_of_range: int = 0

    def __add__(self, other: Judged) -> Judged:
        return Judged(self.refused + other.refused, self.out_of_range + other.out_of_range)

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Judged:
        return cls(int(labels.get(_PREFIX + "refused", 0)), int(labels.get(_PREFIX + "out-of-range", 0)))

    @staticmethod
    def attempt_of(labels: Mapping[str, str]) -> str:
        """Whose letters are those of a load's rows."""
        return labels.get(_PREFIX + "attempt", "")

    def labels(self, attempt: str = "") -> dict[str, str]:
        """Of a job; none where all rows are as they were landed."""
        said = {"refused": self.refused, "out-of-range": self.out_of_range}
        counts = {_PREFIX + name: str(count) for name, count in said.items() if count}
        return {**counts, **({_PREFIX + "attempt": attempt} if attempt and counts else {})}


def is_due(table: BigQueryTable, batches: Sequence[LandedBatch], now: int) -> bool:
    """Whether waiting batches are to be merged now (milliseconds since the epoch): old enough, or records enough."""
    interval, threshold = table.merge_interval_seconds, table.merge_records_threshold
    if interval is not None and now - batches[0].batch.planned_at >= interval * 1000:
        return True
    return threshold is not None and sum(b.counts.landed for b in batches) >= threshold


@dataclass(frozen=True)
class Chunk:
    """Landed rows from ``(first_batch, first_i)`` up to before ``(last_batch, end_i)``."""

    number: int
    first_batch: int
    first_i: int
    last_batch: int
    end_i: int


@dataclass(frozen=True)
class Flush:
    """A range of landed batches that is loaded and merged as one.

    Attributes:
        load_rows: most offsets in one load.
        by_key: rows that are found by their keys, of any batches, in so many loads; None: see `chunks`.
    """

    batches: tuple[LandedBatch, ...]
    load_rows: int
    by_key: int | None = None

    @property
    def first(self) -> LandedBatch:
        return self.batches[0]

    @property
    def last(self) -> LandedBatch:
        return self.batches[-1]

    @property
    def rows(self) -> int:
        """How many rows of these batches are landed, for whatever table."""
        return sum(b.counts.landed for b in self.batches)

    def chunks(self) -> list[Chunk]:
        """The loads. They follow from the batches alone, so that everybody computes the same."""
        if self.by_key or self.last.batch.revises is not None:
            loads = self.by_key or 1 + self.rows // self.load_rows
            return [Chunk(n, self.first.number, 0, self.last.number, 0) for n in range(loads)]
        return self._cut(0, max(self._ends()[-1], 1), self.load_rows)

    def in_one_load(self) -> Flush:
        return replace(self, load_rows=max(self._ends()[-1], 1))

    def parts(self, chunk: Chunk, rows: int) -> list[Chunk]:
        """A chunk in pieces of so many offsets."""
        first = chunk.number * self.load_rows
        return self._cut(first, min(first + self.load_rows, max(self._ends()[-1], 1)), rows)

    def _ends(self) -> list[int]:
        """Where each batch ends in the log of the flush."""
        return list(accumulate(offsets.total(b.batch.ranges) for b in self.batches))

    def _cut(self, first: int, end: int, rows: int) -> list[Chunk]:
        ends = self._ends()
        stops = [min(start + rows, end) for start in range(first, end, rows)]
        return [
            Chunk(n, *self._place(ends, start), *self._place(ends, stop, stop >= ends[-1]))
            for n, (start, stop) in enumerate(zip([first, *stops], stops, strict=False))
        ]

    def _place(self, ends: list[int], position: int, at_end: bool = False) -> tuple[int, int]:
        """Batch and `i` of a position in the log of the flush."""
        if not at_end:
            for n, end in enumerate(ends):
                if position < end:
                    return self.batches[n].number, position - (ends[n - 1] if n else 0)
        return self.last.number, max(offsets.total(self.last.batch.ranges), 1)

    def labels(self, kind: str, run_id: str) -> dict[str, str]:
        """What a job of this flush says about itself. The last commit id is what the state moves to."""
        return {
            **job_labels(kind, self.first.batch.pipeline, run_id),
            _PREFIX + "first-batch": str(self.first.number),
            _PREFIX + "last-batch": str(self.last.number),
            _PREFIX + "last-commit": self.last.batch.commit_id,
            _PREFIX + "load-rows": str(self.load_rows),
        }


def job_labels(kind: str, pipeline: str, run_id: str) -> dict[str, str]:
    return {_PREFIX + "kind": kind, _PREFIX + "pipeline": label(pipeline), _PREFIX + "run": label(run_id)}


def applies(job: Job) -> bool:
    """Whether a merge job moves the table on; a replay, which stands in the same sequence, does not."""
    return bool(job.labels.get(_PREFIX + "kind") == "merge")


def with_state(text: str, after: TableAt) -> str:
    """The statement of a merge that says which state it leaves."""
    return f"{_STATE_AFTER}{after.to_json()}\n{text}"


def state_after(job: Job) -> TableAt | None:
    """What a merge job that did its work has made of the table; None for jobs of before they said so."""
    first, _, _ = str(job.query if isinstance(job, QueryJob) else "").partition("\n")
    if not first.startswith(_STATE_AFTER):
        return None
    return TableAt.from_json(first.removeprefix(_STATE_AFTER))


def adopted(labels: Mapping[str, str], landed: Sequence[LandedBatch], where: str) -> Flush:
    """The flush that a job's labels speak of.

    Raises:
        LineageBroken: the intermediate table does not have those batches.
    """
    first, last = int(labels[_PREFIX + "first-batch"]), int(labels[_PREFIX + "last-batch"])
    batches = tuple(b for b in landed if first <= b.number <= last)
    commit = labels[_PREFIX + "last-commit"]
    if not batches or batches[0].number != first or batches[-1].batch.commit_id != commit:
        raise LineageBroken(
            f"a run has begun to apply batches {first} to {last} ({commit}), which are not landed any more",
            where=where,
            remedy=choices(landed[0].batch.pipeline) if landed else "restore the intermediate table of changes",
        )
    return Flush(batches, int(labels[_PREFIX + "load-rows"]))
