"""The batch protocol on one page (`docs/internals.md`).

    Kafka topics ──land──> intermediate table ──merge──> destination table(s)

1. Plan     a batch is a number, an identity and fixed offset ranges, bounded, from committed state alone.
2. Land     exactly those ranges become one snapshot of the intermediate table; from then on the batch is immutable.
            Its files are written first, and those of the next batch while it is published.
3. Merge    each destination applies all landed batches after its committed one, in one step with the new state;
            a batch that revises earlier ones (`jobs.replay`) is a step of its own.
4. Publish  commit events: control topic and consumer group; repeatable, never read back as truth.

Exactly once rests on compare-and-set inside the commits of 2 and 3: a run that died, one that sleeps and wakes up,
two at once: exactly one of them commits, and the others raise `CommitFailed`, see the new state and go on from it.
A multi-table commit (`commit: together`) is the same merge for all destinations, with one publish at its end. A table
whose parts have committed states of their own (servers that rows are spread over) is merged part by part, side by side.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import replace
from functools import reduce

from jobs.batch import CommittedState, LandedBatch, LandedBatches
from jobs.batch_error_context import batch_error_context
from jobs.behind import log_progress
from jobs.commit_loop import retry_on_conflict
from jobs.dead_letters.landing_moved_rows import land_moved_rows, search_moved_rows
from jobs.dead_letters.topic import DeadLetterTopic
from jobs.destinations.base import Destination
from jobs.destinations.merge_context import Transaction
from jobs.destinations.refused_rows import log_refused
from jobs.events.publishing import LandingEvents, open_in_background, publish_table_events
from jobs.failpoints import failpoint
from jobs.landing.publish import publish_read
from jobs.landing.read_ahead import read, reading_ahead
from jobs.lineage import next_batches, next_stretch
from jobs.merged import MergedBatches, MergedTable, Pending
from jobs.offsets import reached
from jobs.pipeline import Pipeline
from jobs.planning.plan import Planned, TopicState
from jobs.planning.sampled_pipeline import adopt_sampled_key
from jobs.replay.coordinates import check_rereading
from jobs.spec.open_key import key_is_open
from jobs.time_limit import raise_if_to_end
from resources.carried_errors import cause_of
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")


def plan(pipeline: Pipeline, topics: TopicState | None = None) -> Planned:
    """Decides the next batch, without any effect.

    Args:
        topics: what Kafka had for the pipeline's topics a while ago; None: ask for it.
    """
    committed = pipeline.intermediate.committed()
    pipeline.check_meaning(committed)
    if topics is None or (committed and not topics.is_as_new_as(committed)):
        topics = pipeline.topic_state(committed)
    return Planned(pipeline.plan_batch(committed, topics), committed, topics)


def land(pipeline: Pipeline, max_batches: int, topics: TopicState | None = None) -> Iterator[LandedBatch]:
    """Lands up to `max_batches` batches, one by one; 0: until it has all that Kafka had when it began. What comes
    meanwhile is the next landing's, or the tables of a busy source would wait for ever.

    Args:
        topics: what Kafka has for the pipeline's topics, to plan the first batch from; None: ask for it.
    """
    done, wanted = 0, None
    pipeline.intermediate.prepare()
    events, dead_letters = LandingEvents(pipeline), DeadLetterTopic(pipeline)
    search_moved_rows(pipeline)
    dead_letters.publish()
    events.catch_up()
    with reading_ahead(pipeline) as ahead:
        while True:
            planned, topics = ahead.planned() or plan(pipeline, topics), None
            if planned.batch is None:
                return
            # The first records of a pipeline without a declared key: make the table with their key, and plan again.
            if adopt_sampled_key(pipeline):
                pipeline.intermediate.prepare()
                pipeline.resolve()
                continue
            wanted = wanted or planned.topics.stable
            failpoint("land.planned")
            events.requested(planned.batch)
            with batch_error_context([planned.batch]):
                batch = ahead.read() or read(pipeline, pipeline.intermediate, planned)
                done += 1
                is_last = done == max_batches if max_batches else reached(batch.state.offsets, wanted)
                if not is_last:
                    ahead.begin(batch)
                landed = publish_read(batch, pipeline.run_properties)
                ahead.published()
            pipeline.resolve()
            landed = land_moved_rows(pipeline, landed)
            dead_letters.publish()  # first: once a batch's events are published, nothing of it is looked at again
            events.landed(landed)
            log_progress(landed, planned.topics.stable)
            yield landed
            if is_last:
                return


def merge(pipeline: Pipeline, destination: Destination) -> MergedBatches | None:
    """Applies to one table everything that is landed and not yet in it; None where there is nothing.

    Raises:
        LineageBroken: the landed batches do not continue what the table has.
        TerminalError: other writers have committed during each of `max_commit_attempts` attempts.
    """
    parts = destination.parts()
    return _merge_all(pipeline, destination, parts if len(parts) > 1 else ())


def _merge_all(
    pipeline: Pipeline, destination: Destination, parts: Sequence[Destination] = (), publish: bool = True
) -> MergedBatches | None:
    """Merges step by step; before each step its parts do what each can do alone."""
    most, name = destination.table.max_commit_attempts, destination.name
    done = MergedTable(destination, None, more=True)

    def once() -> MergedTable:
        return _merge_once(pipeline, [destination], publish=publish)[0]

    while done.more:
        raise_if_to_end()
        if parts:
            done = MergedTable(destination, _merge_parts(pipeline, parts)).after(done)
        # The table as a whole: what no part could do alone, and the events.
        done = retry_on_conflict(once, most, name).after(done)
    return done.merged


def _merge_parts(pipeline: Pipeline, parts: Sequence[Destination]) -> MergedBatches | None:
    """Merges all parts of a table side by side: one that fails delays no other. Events are for the whole table.

    Raises:
        BatchmergeError: why parts failed, after all have ended.
    """
    pool = ThreadPoolExecutor(len(parts), "batchmerge-part")
    works = [
        pool.submit(copy_context().run, _merge_all, pipeline.for_a_thread(), part, publish=False) for part in parts
    ]
    try:
        wait(works)
    finally:  # where the run is cancelled nobody waits for them
        pool.shutdown(wait=False, cancel_futures=True)
    failed = [problem for work in works if isinstance(problem := work.exception(), BatchmergeError)]
    if failed:
        raise cause_of(failed)
    done = [merged for work in works if (merged := work.result())]
    return reduce(MergedBatches.combined_with, done) if done else None


def merge_together(pipeline: Pipeline) -> list[MergedTable]:
    """Merges every table as `merge` does, in one commit.

    Raises:
        ConfigurationError: the catalog cannot commit several tables at once.
    """
    destinations = pipeline.destinations()
    most, name = max(d.table.max_commit_attempts for d in destinations), f"all tables of pipeline {pipeline.name}"
    done: list[MergedTable] = []
    while not done or any(table.more for table in done):
        step = retry_on_conflict(lambda: _merge_once(pipeline, destinations, destinations[0].transaction()), most, name)
        done = [table.after(before) for table, before in zip(step, done, strict=True)] if done else step
    return done


def pending(pipeline: Pipeline, destination: Destination) -> Pending:
    """Decides what a table has to get; makes or adapts the table, and adapts the landed rows that it gets."""
    destination = pipeline.resolved(destination)
    if has_no_columns(pipeline):
        return Pending(destination, destination.committed(), [], pipeline.intermediate.landed().batches)
    destination.prepare()
    committed = destination.committed()
    landed = pipeline.intermediate.landed()
    # Resolve again after reading the landed batches: they may have brought columns.
    current = pipeline.resolved(destination)
    if current is not destination:
        destination = current
        destination.prepare()
    batches = waiting_batches(destination, committed, landed)
    stretch = next_stretch(batches)
    pipeline.check_meaning(committed, stretch)
    if stretch:
        # The file may have got columns since the last landing, and the table may be merged without one.
        pipeline.intermediate.prepare()
    return Pending(destination, committed, stretch, landed.batches, len(stretch) < len(batches))


def has_no_columns(pipeline: Pipeline) -> bool:
    """Whether no record has brought a column or a key yet: then there is no table to make."""
    return not pipeline.spec.source.row or key_is_open(pipeline.spec)


def waiting_batches(
    destination: Destination, committed: CommittedState | None, landed: LandedBatches
) -> list[LandedBatch]:
    """The landed batches that a table at this state has still to get. Raises LineageBroken."""
    named = destination.table.named
    known = landed.since(named.first) if committed is None and named else landed
    return next_batches(destination.name, committed, known.batches, known.complete)


def _merge_once(
    pipeline: Pipeline,
    destinations: Sequence[Destination],
    transaction: Transaction | None = None,
    publish: bool = True,
) -> list[MergedTable]:
    """One attempt: each table from its own committed state, then the common commit if there is one, then the events."""
    found = [pending(pipeline, destination) for destination in destinations]
    for wanted in found if publish else ():
        if wanted.batches:
            open_in_background(pipeline, wanted.destination)
    done = [_apply(pipeline, wanted, transaction) for wanted in found]
    if transaction:
        failpoint("together.written")
        transaction.commit()
        failpoint("together.published")
    for wanted, merged in zip(found, done, strict=True) if publish else ():
        _publish_events(pipeline, wanted, merged)
    # `merged` is None if the table's own trigger says "not yet": then do not try its later batches either.
    return [
        MergedTable(wanted.destination, merged, wanted.more and merged is not None)
        for wanted, merged in zip(found, done, strict=True)
    ]


def _apply(pipeline: Pipeline, wanted: Pending, transaction: Transaction | None) -> MergedBatches | None:
    """Merges the pending batches into the table; with a transaction everything but the commit itself."""
    if not wanted.batches:
        return None
    if wanted.batches[-1].batch.revises == 0:
        # Read from Kafka again. It was checked when that was landed, but a table may have been added since.
        check_rereading(pipeline, wanted.destination, from_kafka=True)
    failpoint("merge.planned")
    context = replace(pipeline.merge_context(wanted.destination), transaction=transaction, due=wanted.more)
    with batch_error_context([b.batch for b in wanted.batches]):
        merged = wanted.destination.merge(context, wanted.committed, wanted.batches)
    return MergedBatches(wanted.batches, wanted.committed, merged) if merged else None


def _publish_events(pipeline: Pipeline, wanted: Pending, done: MergedBatches | None) -> None:
    """Publishes even if there was nothing to merge: a dead run may have left events or dead letters behind."""
    DeadLetterTopic(pipeline, wanted.destination).publish()
    if done is None:
        publish_table_events(pipeline, wanted.destination, wanted.landed)
        return
    first, last = done.batches[0].number, done.batches[-1].number
    _LOG.info("merged batches %d to %d into %s", first, last, wanted.destination.name)
    log_refused(pipeline.name, wanted.destination.name, done.merged.counts)
    publish_table_events(pipeline, wanted.destination, wanted.landed, done.batches, done.merged.reference)
