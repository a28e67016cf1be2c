"""The landing of a continuous run."""

from __future__ import annotations

import time

from jobs import protocol
from jobs.batch import CommittedState, LandedBatch
from jobs.offsets import reached
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from orchestration import open_lineage
from orchestration.components import checks, metadata
from orchestration.components.landing import shown
from orchestration.continuous.step import ContinuousStep
from orchestration.names import continuous_tables, table_key
from orchestration.pools.turns import Over
from resources.errors import CommitFailed

# Refused commits in a row after which the step fails. A run by hand may have landed first, but not so often.
_REFUSALS = 5


def land_continuously(step: ContinuousStep) -> None:
    """Lands what is new in Kafka at every tick, in as many batches as it takes, until the step is over."""
    with step.at_work() as ticks:
        # Opened at the first tick: after a failure, as by a mistake in a file, the step has to wait first.
        pipeline: Pipeline | None = None
        done = _LandingPeriod()
        for _ in ticks:
            if pipeline is None:
                pipeline = step.open()
                # Also without changes: a dead run may have left commit events unpublished.
                _land_in_turn(step, pipeline, done, None)
            _land_what_is_new(step, pipeline, done)
            if step.is_due(bool(done.batches)):
                _materialize(step, pipeline, done)
        if pipeline and done.batches:
            _materialize(step, pipeline, done)


def _land_what_is_new(step: ContinuousStep, pipeline: Pipeline, done: _LandingPeriod) -> None:
    """Lands what Kafka has now. What comes meanwhile is for the next tick, so that batches keep to the interval."""
    planned = pipeline.land_in_time(lambda: protocol.plan(pipeline))
    seen = topics = planned.topics if planned.batch else None
    while seen and not step.is_over():
        landed = _land_in_turn(step, pipeline, done, topics)
        if landed is None or reached(CommittedState.after(landed).offsets, seen.stable):
            return
        # Kafka is asked before each further batch: it may have deleted records meanwhile.
        topics = None
        if step.is_due(True):
            _materialize(step, pipeline, done)


def _land_in_turn(
    step: ContinuousStep, pipeline: Pipeline, done: _LandingPeriod, topics: TopicState | None
) -> LandedBatch | None:
    """Lands a batch in a turn of its own: who waits for the table comes between two batches, however many wait.

    None: there is nothing to land, the commit was refused, or the step was over before its turn came. Then the ticks
    end, and what was landed is reported.
    """
    try:
        with step.turn():
            landed = _land(step, pipeline, done, topics)
    except Over:
        return None
    except CommitFailed:
        done.refused += 1
        if done.refused == _REFUSALS:
            raise
        return None
    done.refused = 0
    return landed


class _LandingPeriod:
    """What was landed since the last materialization, the seconds that took, and the batch before; how many commits in
    a row were refused."""

    def __init__(self) -> None:
        self.batches = list[LandedBatch]()
        self.before = list[LandedBatch]()
        self.seconds = 0.0
        self.refused = 0

    def restart_period(self) -> None:
        self.before, self.batches, self.seconds = self.batches[-1:] or self.before, [], 0.0


def _land(
    step: ContinuousStep, pipeline: Pipeline, done: _LandingPeriod, topics: TopicState | None
) -> LandedBatch | None:
    """Lands the next batch; None if there is none."""
    tables = [table_key(table) for table in continuous_tables(step.launch.spec)]

    def work() -> LandedBatch | None:
        for batch in protocol.land(pipeline, 1, topics):
            done.batches.append(batch)
            newest = checks.with_others(
                [*done.before, *done.batches][-2:], lambda: pipeline.intermediate.landed().batches
            )
            step.require_passed(checks.landing_results(step.key, newest))
            step.ring(tables)
            return batch
        return None

    began = time.monotonic()
    landed = pipeline.land_in_time(work)
    done.seconds += time.monotonic() - began
    return landed


def _materialize(step: ContinuousStep, pipeline: Pipeline, done: _LandingPeriod) -> None:
    landed = pipeline.intermediate.landed().batches
    results = checks.landing_results(step.key, checks.with_others([*done.before, *done.batches], lambda: landed))
    results.append(checks.fields_result(step.key, pipeline.spec, landed))
    batches, rows = done.batches, metadata.total(done.batches).landed
    open_lineage.send_landed(pipeline, rows)
    facts, version = shown(pipeline, batches, done.seconds)
    done.restart_period()
    step.observe_topics(len(batches), rows)
    step.materialize(facts, results, version.value if version else None, batches=len(batches), rows=rows)
