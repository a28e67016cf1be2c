"""The batch protocol on one page (DESIGN section 3).

    Kafka topics ──land──> intermediate table ──merge──> destination table(s)

1. Plan     a batch is a number, an identity and fixed offset ranges, bounded, from committed state alone.
2. Land     exactly those ranges become one snapshot of the intermediate table; from then on the batch is immutable.
3. Merge    each destination applies all landed batches after its committed one, in one step with the new state.
4. News     the consumer group follows the tables; repeatable, never read back as truth.

Exactly once rests on compare-and-set inside the commits of 2 and 3: a run that died, one that sleeps and wakes up,
two at once: exactly one of them commits, and the others raise `CommitFailed`, see the new state and go on from it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.batch import Batch, CommittedState, LandedBatch
from jobs.batch_error_context import batch_error_context
from jobs.dead_letters.topic import DeadLetterTopic
from jobs.destinations.base import Destination, Merged
from jobs.events.publishing import LandingEvents, publish_table_events
from jobs.failpoints import failpoint
from jobs.lineage import next_batches
from jobs.pipeline import Pipeline
from jobs.plan import TopicState
from jobs.progress import log_progress
from resources.errors import CommitFailed, CommitStateUnknown, TerminalError

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class Planned:
    """The next batch and what it was planned from; `batch` is None where there is nothing new."""

    batch: Batch | None
    committed: CommittedState | None
    topics: TopicState


def plan(pipeline: Pipeline) -> Planned:
    """Decides the next batch, without any effect."""
    committed = pipeline.intermediate.committed()
    pipeline.check_generation(committed)
    topics = pipeline.topic_state()
    return Planned(pipeline.plan_batch(committed, topics), committed, topics)


def land(pipeline: Pipeline, max_batches: int) -> Iterator[LandedBatch]:
    """Lands up to `max_batches` batches (0: until caught up), one by one."""
    done = 0
    pipeline.intermediate.prepare()
    news = LandingEvents(pipeline)
    news.catch_up()
    dead_letters = DeadLetterTopic(pipeline)
    dead_letters.publish()
    while max_batches == 0 or done < max_batches:
        planned = plan(pipeline)
        if planned.batch is None:
            return
        failpoint("land.planned")
        news.requested(planned.batch)
        with batch_error_context([planned.batch]):
            landed = pipeline.intermediate.land(
                pipeline.spark("landing", pipeline.intermediate.catalog),
                pipeline.kafka,
                planned.batch,
                planned.committed,
                planned.topics.stable,
                pipeline.run_properties,
            )
        news.landed(landed)
        dead_letters.publish()
        log_progress(landed, planned.topics.stable)
        yield landed
        done += 1


@dataclass(frozen=True)
class MergedBatches:
    """One committed merge: which batches, from which state, and what it did."""

    batches: list[LandedBatch]
    before: CommittedState | None
    merged: Merged

    @property
    def after(self) -> CommittedState:
        return CommittedState.after(self.batches[-1])


@dataclass(frozen=True)
class Pending:
    """What a table has to get: the landed batches after its committed state."""

    committed: CommittedState | None
    batches: list[LandedBatch]
    landed: list[LandedBatch]


def pending(pipeline: Pipeline, destination: Destination) -> Pending:
    """Decides what a table has to get; makes or adapts the table."""
    destination.prepare()
    committed = destination.committed()
    landed, complete = pipeline.intermediate.landed()
    batches = next_batches(destination.name, committed, landed, complete)
    pipeline.check_generation(committed, batches)
    return Pending(committed, batches, landed)


def tell(pipeline: Pipeline, destination: Destination, landed: list[LandedBatch], done: MergedBatches | None) -> None:
    """The news after a merge, or after there was nothing to merge."""
    if done is None:
        publish_table_events(pipeline, destination, landed)
        return
    batches = done.batches
    _LOG.info("merged batches %d to %d into %s", batches[0].number, batches[-1].number, destination.name)
    publish_table_events(pipeline, destination, landed, batches, done.merged.reference)


def merge(pipeline: Pipeline, destination: Destination) -> MergedBatches | None:
    """Applies to one table everything that is landed and not yet in it; None where there is nothing.

    Starts over when another writer was faster, from the state that is then true, a bounded number of times.
    """
    failed: Exception | None = None
    for attempt in range(1, destination.table.max_commit_attempts + 1):
        wanted = pending(pipeline, destination)
        merged = None
        if wanted.batches:
            failpoint("merge.planned")
            try:
                with batch_error_context([b.batch for b in wanted.batches]):
                    merged = destination.merge(pipeline.merge_context(destination), wanted.committed, wanted.batches)
            except (CommitFailed, CommitStateUnknown) as lost:
                _LOG.warning("%s, attempt %d: %s", destination.name, attempt, lost)
                failed = lost
                continue
        done = MergedBatches(wanted.batches, wanted.committed, merged) if merged else None
        tell(pipeline, destination, wanted.landed, done)
        return done
    raise TerminalError(
        f"other writers have changed the table during each of {attempt} attempts; the last said: {failed}",
        where=destination.name,
        remedy="let them write less often or to a branch, or raise `max_commit_attempts`",
    ) from failed
