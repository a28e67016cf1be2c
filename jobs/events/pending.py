"""Which batches a role has not told of yet. Pure decisions.

What a role has told is kept as a note beside its consumer group's offsets, committed in the transaction of the events
themselves. It decides about news only: batches, plans and tables never depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.batch import CommittedState, LandedBatch

# Kafka forgets the offsets of a group without members after this (`offsets.retention.minutes`, 7 days by default).
_NOTES_LAST = 7 * 24 * 3600 * 1000


@dataclass(frozen=True)
class Said:
    """The newest batch that a role has told of."""

    batch_number: int
    commit_id: str

    def to_note(self) -> str:
        return json.dumps({"batch": self.batch_number, "commit_id": self.commit_id})


def newest_said(notes: Sequence[str]) -> Said | None:
    """The newest among a group's notes; None where there is none, or none of ours."""
    found = []
    for note in notes:
        try:
            document = json.loads(note)
            found.append(Said(int(document["batch"]), str(document["commit_id"])))
        except (KeyError, TypeError, ValueError):
            continue
    return max(found, key=lambda said: said.batch_number, default=None)


def unsaid(
    said: Said | None,
    landed: Sequence[LandedBatch],
    state: CommittedState,
    now: int,
    merged: Sequence[LandedBatch] = (),
) -> list[CommittedState]:
    """The states that the table went through and nobody was told of, ascending, the present one last.

    Without a note there is no knowing: the pipeline is new, or Kafka has forgotten. Then what is older than Kafka's
    memory is left out, so that a pipeline that slept for long does not tell its whole history again.

    Args:
        landed: the landed batches that are still known, ascending.
        state: the table's committed state.
        now: milliseconds since the epoch.
        merged: what this very step has merged: certainly untold.
    """
    if said is not None and _of_another_life(said, landed, state):
        said = None
    if said is not None:
        if said.batch_number >= state.batch_number:
            return []
        after = said.batch_number
        wanted = {b.number for b in landed if b.number > after}
    else:
        wanted = {b.number for b in landed if b.batch.planned_at > now - _NOTES_LAST} | {b.number for b in merged}
    earlier = [b for b in landed if b.number in wanted and b.number < state.batch_number]
    return [*(CommittedState.after(b) for b in earlier), state]


def _of_another_life(said: Said, landed: Sequence[LandedBatch], state: CommittedState) -> bool:
    """The tables were dropped and the pipeline begun again: the note's batch is not in this history.

    A table that was only rolled back stands before the note's batch too; but that batch is still landed.
    """
    known = {b.number: b.batch.commit_id for b in landed}
    if said.batch_number in known:
        return known[said.batch_number] != said.commit_id
    newest = max([state.batch_number, *known])
    return said.batch_number > newest
