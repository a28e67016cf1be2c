"""Lands new records of the members of a pipeline (`jobs.members`) side by side, each by the protocol."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from jobs import protocol
from jobs.batch import CommittedState, LandedBatch
from jobs.members.members import Members
from jobs.members.side_by_side import Outcome
from jobs.members.topics import Seen
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState


def land(
    members: Members, seen: Seen, max_batches: int, turn: float = math.inf
) -> Iterator[Outcome[list[LandedBatch]]]:
    """Lands new records of every member, at most `max_batches` batches of each (0: all that was seen). After `turn`
    seconds no further batch begins; the next landing continues."""
    until = time.monotonic() + turn
    are_published = members.published_check("landing") if members.spec.control.enabled else lambda _: True
    yield from (Outcome(topic, problem=problem) for topic, problem in seen.failed.items())

    def work(pipeline: Pipeline, topics: TopicState) -> list[LandedBatch] | None:
        committed = pipeline.intermediate.committed()
        if not _has_changes(pipeline, committed, topics) and (committed is None or are_published(committed.offsets)):
            return None
        done = list[LandedBatch]()

        def batches() -> list[LandedBatch]:
            for batch in protocol.land(pipeline, max_batches, topics):
                done.append(batch)
                if time.monotonic() > until:
                    break
            return done

        return pipeline.land_in_time(batches, done) or None

    yield from members.each_reading("landing", seen, work)


def _has_changes(pipeline: Pipeline, committed: CommittedState | None, state: TopicState) -> bool:
    """Whether landing has anything to do or to refuse; False only if everything in Kafka is known to be landed."""
    if committed is None:
        return state.stable != state.first or pipeline.spec.source.start == "latest"
    return dict(committed.offsets) != dict(state.stable) or not state.topic_ids.items() <= committed.topic_ids.items()
