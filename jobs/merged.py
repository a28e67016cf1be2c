"""Values of the protocol about a table's merge: what the table has to get, and what it got."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jobs.batch import CommittedState, LandedBatch
from jobs.destinations.base import Destination
from jobs.destinations.merge_context import Merged


@dataclass(frozen=True)
class MergedBatches:
    """One committed merge: its batches, the state before it, and its result."""

    batches: list[LandedBatch]
    before: CommittedState | None
    merged: Merged

    @property
    def after(self) -> CommittedState:
        return CommittedState.after(self.batches[-1])

    def combined_with(self, other: MergedBatches) -> MergedBatches:
        """Combines the merges of two parts of a table, which have rows of the same batches."""
        batches = {batch.number: batch for batch in (*self.batches, *other.batches)}
        first = min(self, other, key=lambda one: one.batches[0].number)
        mine, theirs = self.merged, other.merged
        counts = replace(mine.counts + theirs.counts, changes=max(mine.counts.changes, theirs.counts.changes))
        seconds = {s: max(m.seconds.get(s, 0.0) for m in (mine, theirs)) for s in {**mine.seconds, **theirs.seconds}}
        merged = Merged(counts, f"{mine.reference}, {theirs.reference}", seconds)
        return MergedBatches([batches[number] for number in sorted(batches)], first.before, merged)

    def since(self, earlier: MergedBatches | None) -> MergedBatches:
        """This merge and earlier ones as one."""
        if earlier is None:
            return self
        old, new = earlier.merged, self.merged
        stages = {**old.seconds, **new.seconds}
        seconds = {stage: round(old.seconds.get(stage, 0.0) + new.seconds.get(stage, 0.0), 3) for stage in stages}
        duplicates = _sum_counted(old.duplicates, new.duplicates)
        merged = replace(new, counts=old.counts + new.counts, seconds=seconds, duplicates=duplicates)
        return MergedBatches([*earlier.batches, *self.batches], earlier.before, merged)


def _sum_counted(*duplicates: int | None) -> int | None:
    """The sum of the counted duplicates; None if none were found and one of the merges did not count them."""
    return sum(filter(None, duplicates)) or (None if None in duplicates else 0)


@dataclass(frozen=True)
class Pending:
    """The landed batches that a table lacks.

    Attributes:
        batches: those that are merged next, in one step.
        more: whether others follow.
    """

    destination: Destination
    committed: CommittedState | None
    batches: list[LandedBatch]
    landed: list[LandedBatch]
    more: bool = False


@dataclass(frozen=True)
class MergedTable:
    """The result for one table; `merged` is None if it had everything already; `more`: it still lacks batches."""

    destination: Destination
    merged: MergedBatches | None
    more: bool = False

    def after(self, before: MergedTable | None) -> MergedTable:
        """This step and earlier ones as one."""
        earlier = before.merged if before else None
        return replace(self, merged=self.merged.since(earlier) if self.merged else earlier)
