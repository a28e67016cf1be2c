"""The batch of records that are read again (`jobs.replay.revise`)."""

from __future__ import annotations

import time

from jobs.batch import Batch, CommittedState, new_commit_id
from jobs.offsets import OffsetRange
from jobs.pipeline import Pipeline


def revising_batch(pipeline: Pipeline, committed: CommittedState, revises: int) -> Batch:
    """The next batch, for records that are read again.

    Args:
        revises: no batch before this one is revised; 0: any may be (a replay from Kafka).
    """
    return Batch(
        pipeline=pipeline.name,
        number=committed.batch_number + 1,
        commit_id=new_commit_id(),
        previous_commit_id=committed.commit_id,
        ranges={tp: OffsetRange(offset, offset) for tp, offset in sorted(committed.offsets.items())},
        topic_ids=committed.topic_ids,
        planned_at=int(time.time() * 1000),
        meaning_hash=pipeline.spec.meaning_hash,
        leader_epochs=committed.leader_epochs,
        revises=revises,
    )


def most_attempts(pipeline: Pipeline) -> int:
    return max(table.max_commit_attempts for table in pipeline.spec.tables)
