"""The landing of a continuous run."""

from __future__ import annotations

import time

from jobs import protocol
from jobs.batch import CommittedState, LandedBatch
from jobs.offsets import reached
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


class Landing:
    """Lands what is new in Kafka, in as many batches as it takes.

    Attributes:
        batches: those since the last report, which took these seconds.
        before: the batch before them.
        refused: how many commits in a row were refused.
    """

    def __init__(self, step: ContinuousStep) -> None:
        self.step, self.pipeline = step, step.open()
        self.batches, self.before = list[LandedBatch](), list[LandedBatch]()
        self.seconds, self.refused = 0.0, 0
        self._is_first_tick = True

    @property
    def has_changes(self) -> bool:
        return bool(self.batches)

    def tick(self) -> None:
        """Lands what Kafka has now. What comes meanwhile is for the next tick, so that batches keep to the interval."""
        if self._is_first_tick:
            # Also without changes: a dead run may have left commit events unpublished.
            self._land_in_turn(None)
            self._is_first_tick = False
        planned = self.pipeline.land_in_time(lambda: protocol.plan(self.pipeline))
        seen = topics = planned.topics if planned.batch else None
        while seen and not self.step.is_over():
            landed = self._land_in_turn(topics)
            if landed is None or reached(CommittedState.after(landed).offsets, seen.stable):
                return
            # Kafka is asked before each further batch: it may have deleted records meanwhile.
            topics = None
            if self.step.is_due(True):
                self.report()

    def _land_in_turn(self, topics: TopicState | None) -> LandedBatch | None:
        """Lands a batch in a turn of its own: who waits for the table comes between two batches, however many wait.

        None: there is nothing to land, the commit was refused, or the step was over before its turn came. Then the
        ticks end, and what was landed is reported.
        """
        try:
            with self.step.turn():
                landed = self._land(topics)
        except Over:
            return None
        except CommitFailed:
            self.refused += 1
            if self.refused == _REFUSALS:
                raise
            return None
        self.refused = 0
        return landed

    def _land(self, topics: TopicState | None) -> LandedBatch | None:
        """Lands the next batch; None if there is none."""
        step, pipeline = self.step, self.pipeline
        tables = [table_key(table) for table in continuous_tables(step.launch.spec)]

        def work() -> LandedBatch | None:
            for batch in protocol.land(pipeline, 1, topics):
                self.batches.append(batch)
                newest = checks.with_others(
                    [*self.before, *self.batches][-2:], lambda: pipeline.intermediate.landed().batches
                )
                step.require_passed(checks.landing_results(step.key, newest))
                step.ring(tables)
                return batch
            return None

        began = time.monotonic()
        landed = pipeline.land_in_time(work)
        self.seconds += time.monotonic() - began
        return landed

    def report(self) -> None:
        step, pipeline = self.step, self.pipeline
        landed = pipeline.intermediate.landed().batches
        results = checks.landing_results(step.key, checks.with_others([*self.before, *self.batches], lambda: landed))
        results.append(checks.fields_result(step.key, pipeline.spec, landed))
        batches, rows = self.batches, metadata.total(self.batches).landed
        open_lineage.send_landed(pipeline, rows)
        facts, version = shown(pipeline, batches, self.seconds)
        self.before, self.batches, self.seconds = batches[-1:] or self.before, [], 0.0
        step.observe_topics(len(batches), rows)
        step.materialize(facts, results, version.value if version else None, batches=len(batches), rows=rows)
