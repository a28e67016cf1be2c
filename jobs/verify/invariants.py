"""Invariants of batches and committed states. Pure: each function returns the violations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from jobs.batch import CommittedState, LandedBatch
from jobs.offsets import ends


def offset_jumps(landed: Sequence[LandedBatch]) -> list[str]:
    """Batches that do not start at the offsets at which the previous batch ended."""
    wrong = []
    for before, after in pairwise(landed):
        reached = ends(before.batch.ranges)
        begins = after.batch.begins_after(before.batch.commit_id)
        for tp, start in begins.items():
            if tp in reached and start != reached[tp]:
                wrong.append(
                    f"batch {after.number} starts at {start} of {tp}, batch {before.number} ended at {reached[tp]}"
                )
        lost = sorted(set(reached) - set(begins))
        wrong += [f"batch {after.number} leaves out {tp}" for tp in lost]
    return wrong


def unbalanced(landed: Sequence[LandedBatch]) -> list[str]:
    """Batches whose records read are not the sum of landed, quarantined, filtered and skipped."""
    return [
        f"batch {b.number}: read {b.counts.read}, landed {b.counts.landed}, quarantined {b.counts.quarantined}, "
        f"filtered {b.counts.filtered}, skipped {b.counts.skipped}"
        for b in landed
        if not b.counts.balanced
    ]


def not_next(landed: Sequence[LandedBatch]) -> list[str]:
    """Batches that do not follow the previous one by number and by commit id."""
    return [
        f"batch {after.number} follows {after.batch.previous_commit_id}, but batch {before.number} is "
        f"{before.batch.commit_id}"
        for before, after in pairwise(landed)
        if not after.batch.follows(before.batch.commit_id)
        or (after.number != before.number + 1 and after.batch.continues is None)
    ]


def offset_mismatch(state: CommittedState | None, landed: Sequence[LandedBatch]) -> list[str]:
    """Differences between a table's committed state and the landed batch of the same number."""
    if state is None:
        return []
    same = [b for b in landed if b.number == state.batch_number]
    if not same:  # removed by retention, or the engine has already reported it
        return []
    batch = same[0].batch
    wrong = []
    if batch.commit_id != state.commit_id:
        wrong.append(f"batch {batch.number} is landed as {batch.commit_id}, {state.commit_id} is in the table")
    reached = ends(batch.ranges)
    wrong += [
        f"batch {batch.number} ends at {reached.get(tp)} of {tp}, the table says {offset}"
        for tp, offset in sorted(state.offsets.items())
        if reached.get(tp) != offset
    ]
    return wrong
