"""The batches for which a role has not published events yet. Decisions without effects.

The newest published batch is kept in the metadata of the role's consumer group's offsets, committed in the transaction
of the events themselves. Only events depend on it, never batches, plans or tables.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jobs.batch import CommittedState, LandedBatch
from jobs.events.messages import Payload

# After this time Kafka forgets the offsets of a group without members (`offsets.retention.minutes`, default 7 days).
_KAFKA_REMEMBERS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True)
class PublishedThrough:
    """The newest batch for which a role has published events."""

    batch_number: int
    commit_id: str

    def to_metadata(self) -> str:
        return json.dumps({"batch": self.batch_number, "commit_id": self.commit_id})


@dataclass(frozen=True)
class Due:
    """The pending events of one consumer group, which is moved in the same transaction.

    Attributes:
        point: the name of its failpoints.
        state: the newest state to publish.
        landed, merged: as for `unpublished`.
        payloads: returns the events of a state.
        alone: no other role publishes this group's events.
    """

    point: str
    group: str
    state: CommittedState
    landed: Sequence[LandedBatch]
    payloads: Callable[[CommittedState], list[Payload]]
    merged: Sequence[LandedBatch] = ()
    alone: bool = True

    def states(self, published: PublishedThrough | None) -> list[CommittedState]:
        """The unpublished states up to `state`, from what is published."""
        return unpublished(published, self.landed, self.state, int(time.time() * 1000), self.merged)


def published_through(metadata: Iterable[str]) -> PublishedThrough | None:
    """The newest batch in the metadata of a group's offsets; None if there is none of ours."""
    found = []
    for text in metadata:
        try:
            document = json.loads(text)
            found.append(PublishedThrough(int(document["batch"]), str(document["commit_id"])))
        except (KeyError, TypeError, ValueError):
            continue
    return max(found, key=lambda newest: newest.batch_number, default=None)


def unpublished(
    published: PublishedThrough | None,
    landed: Sequence[LandedBatch],
    state: CommittedState,
    now: int,
    merged: Sequence[LandedBatch] = (),
    never: bool = False,
) -> list[CommittedState]:
    """The states of the table for which no events were published, ascending, the present one last.

    `published` is None if the pipeline is new, or if Kafka has forgotten the group. Then batches older than Kafka's
    retention of groups are skipped, so that a pipeline that was off for weeks does not publish its whole history again.

    Args:
        landed: the landed batches that are still known, ascending.
        state: the table's committed state.
        now: milliseconds since the epoch.
        merged: the batches that this step has merged, which are certainly not published.
        never: nothing was ever published, so Kafka has forgotten nothing.
    """
    if published is not None and _of_dropped_tables(published, landed, state):
        published = None
    if published is not None:
        if published.batch_number >= state.batch_number:
            return []
        after = published.batch_number
        wanted = {b.number for b in landed if b.number > after}
    else:
        recent = {b.number for b in landed if never or b.batch.planned_at > now - _KAFKA_REMEMBERS}
        wanted = recent | {b.number for b in merged}
    earlier = [b for b in landed if b.number in wanted and b.number < state.batch_number]
    return [*(CommittedState.after(b) for b in earlier), state]


def _of_dropped_tables(published: PublishedThrough, landed: Sequence[LandedBatch], state: CommittedState) -> bool:
    """Whether the published batch is not in this history, because the tables were dropped and the pipeline started
    over.

    A table that was only rolled back is at an earlier batch too, but there the published batch is still landed.
    """
    known = {b.number: b.batch.commit_id for b in landed}
    if published.batch_number in known:
        return known[published.batch_number] != published.commit_id
    newest = max([state.batch_number, *known])
    return published.batch_number > newest
