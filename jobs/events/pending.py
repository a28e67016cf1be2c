"""Which batches a role has not published events of yet. Pure decisions.

How far a role has published is kept in the metadata of its consumer group's offsets, committed in the transaction of
the events themselves. It decides about events only: batches, plans and tables never depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jobs.batch import CommittedState, LandedBatch
from jobs.events.messages import Payload

# Kafka forgets the offsets of a group without members after this (`offsets.retention.minutes`, 7 days by default).
_KAFKA_REMEMBERS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True)
class PublishedThrough:
    """The newest batch whose events a role has published."""

    batch_number: int
    commit_id: str

    def to_metadata(self) -> str:
        return json.dumps({"batch": self.batch_number, "commit_id": self.commit_id})


@dataclass(frozen=True)
class Due:
    """The pending events of one group, which is moved along with them.

    Attributes:
        point: names its failpoints.
        state: the newest state to publish.
        find: the states up to it that are not published yet, by what the group says is published.
        payloads: the events of each of them.
    """

    point: str
    group: str
    state: CommittedState
    find: Callable[[PublishedThrough | None, CommittedState], list[CommittedState]]
    payloads: Callable[[CommittedState], list[Payload]]


def published_through(metadata: Iterable[str]) -> PublishedThrough | None:
    """The newest among the metadata of a group's offsets; None where there is none, or none of ours."""
    found = []
    for text in metadata:
        try:
            document = json.loads(text)
            found.append(PublishedThrough(int(document["batch"]), str(document["commit_id"])))
        except (KeyError, TypeError, ValueError):
            continue
    return max(found, key=lambda newest: newest.batch_number, default=None)


def pending(
    published: PublishedThrough | None,
    landed: Sequence[LandedBatch],
    state: CommittedState,
    now: int,
    merged: Sequence[LandedBatch] = (),
    never: bool = False,
) -> list[CommittedState]:
    """The states that the table went through without published events, ascending, the present one last.

    `published` None means that the pipeline is new, or that Kafka has forgotten the group. Then batches older than
    Kafka's memory are left out, so that a pipeline that was off for weeks does not publish its whole history again.

    Args:
        landed: the landed batches that are still known, ascending.
        state: the table's committed state.
        now: milliseconds since the epoch.
        merged: what this very step has merged: certainly not published.
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
    """The published batch is not in this history: the tables were dropped and the pipeline started over.

    A table that was only rolled back is at an earlier batch too; but there the published batch is still landed.
    """
    known = {b.number: b.batch.commit_id for b in landed}
    if published.batch_number in known:
        return known[published.batch_number] != published.commit_id
    newest = max([state.batch_number, *known])
    return published.batch_number > newest
