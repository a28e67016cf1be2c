"""What one flush is: which batches, when it is due, and what its jobs' labels say. Pure.

Whoever submits the load of a flush fixes its range, in the job's labels; everybody else reads it there. So two runs
that see different batches never fill one flush with two ranges. The statement of a merge says besides, in its first
line, which state its table has after it: what has taken effect is known even where its batches are not landed any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.cloud.bigquery import QueryJob

from jobs.added import Added
from jobs.batch import LandedBatch
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.state import TableAt
from jobs.lineage import choices
from resources.bigquery import Job
from resources.bigquery_labels import label
from resources.errors import LineageBroken

PREFIX = "batchmerge-"
_STATE_AFTER = "-- State of the table after this: "


def is_due(table: BigQueryTable, batches: Sequence[LandedBatch], now: int) -> bool:
    """Whether waiting batches are to be merged now (milliseconds since the epoch): by their age, or their records."""
    interval, threshold = table.merge_interval_seconds, table.merge_records_threshold
    # The clock of the machine that landed them may be ahead.
    age = max(0, now - batches[0].batch.planned_at)
    if interval is not None and age >= interval * 1000:
        return True
    return threshold is not None and sum(b.counts.landed for b in batches) >= threshold


@dataclass(frozen=True)
class Flush:
    """A range of landed batches that is loaded and merged as one."""

    batches: tuple[LandedBatch, ...]

    @property
    def first(self) -> LandedBatch:
        return self.batches[0]

    @property
    def last(self) -> LandedBatch:
        return self.batches[-1]

    @property
    def rows(self) -> int:
        """How many rows of these batches are landed, whichever table takes them."""
        return sum(b.counts.landed for b in self.batches)

    def labels(self, kind: str, run_id: str) -> dict[str, str]:
        """What a job of this flush says about itself. The last commit id is what the state moves to."""
        said = {
            "kind": kind,
            "pipeline": label(self.first.batch.pipeline),
            "run": label(run_id),
            "first-batch": str(self.first.number),
            "last-batch": str(self.last.number),
            "last-commit": self.last.batch.commit_id,
        }
        return {PREFIX + name: value for name, value in said.items()}


@dataclass(frozen=True)
class RefusedCounts(Added):
    """Counts of refused and adjusted rows of a load; counts of several loads can be added."""

    refused: int = 0
    out_of_range: int = 0

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> RefusedCounts:
        return cls(int(labels.get(PREFIX + "refused", 0)), int(labels.get(PREFIX + "out-of-range", 0)))

    @staticmethod
    def attempt_of(labels: Mapping[str, str]) -> str:
        """The attempt that wrote the dead letters of a load."""
        return labels.get(PREFIX + "attempt", "")

    def labels(self, attempt: str = "") -> dict[str, str]:
        """Labels for a job; empty if all rows are as they were landed."""
        said = {"refused": self.refused, "out-of-range": self.out_of_range}
        counts = {PREFIX + name: str(count) for name, count in said.items() if count}
        return {**counts, **({PREFIX + "attempt": attempt} if attempt and counts else {})}


def applies(job: Job) -> bool:
    """Whether a job moves the table's state: a merge does, a replay in the same sequence does not."""
    return bool(job.labels.get(PREFIX + "kind") == "merge")


def with_state(text: str, after: TableAt) -> str:
    """The statement of a merge that says which state it leaves."""
    return f"{_STATE_AFTER}{after.to_json()}\n{text}"


def state_after(job: Job) -> TableAt:
    """The table's state after a successful merge job."""
    assert isinstance(job, QueryJob)
    return TableAt.from_json(job.query.partition("\n")[0].removeprefix(_STATE_AFTER))


def adopted(labels: Mapping[str, str], landed: Sequence[LandedBatch], where: str) -> Flush:
    """The flush that a job's labels name.

    Raises:
        LineageBroken: the intermediate table does not have those batches.
    """
    first, last = int(labels[PREFIX + "first-batch"]), int(labels[PREFIX + "last-batch"])
    batches = tuple(b for b in landed if first <= b.number <= last)
    commit = labels[PREFIX + "last-commit"]
    if not batches or batches[0].number != first or batches[-1].batch.commit_id != commit:
        raise LineageBroken(
            f"a run has begun to apply batches {first} to {last} ({commit}), which are not landed any more",
            where=where,
            remedy=choices(landed[0].batch.pipeline) if landed else "restore the intermediate table",
        )
    return Flush(batches)
