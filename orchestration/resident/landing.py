"""The landing of a run that stays."""

from __future__ import annotations

import time

import dagster as dg

from jobs import protocol
from jobs.batch import LandedBatch
from jobs.pipeline import Pipeline
from orchestration import open_lineage
from orchestration.components import checks, metadata
from orchestration.components.landing import shown
from orchestration.names import resident_tables, table_key
from orchestration.resident.staying import Staying
from resources.errors import CommitFailed

# Runs by hand may land at the same moment. One that is refused so often in a row has another reason.
_REFUSALS = 5


def stay_landing(stay: Staying) -> None:
    """Lands what is new in Kafka at every tick, in as many batches as it takes, until the step is over."""
    with stay.at_work() as ticks:
        # Opened at the first tick: a step that failed by a mistake in a file is to wait before it looks again.
        pipeline, done, refused, first = None, _Landed(), 0, True
        for _ in ticks:
            pipeline = pipeline or stay.open()
            # The first time also without changes: a run that died may have left events unpublished.
            if first or protocol.plan(pipeline).batch:
                try:
                    with stay.turn():
                        _land(stay, pipeline, done)
                    refused = 0
                except CommitFailed:
                    refused += 1
                    if refused == _REFUSALS:
                        raise
            first = False
            if stay.is_due(bool(done.batches)):
                _materialize(stay, pipeline, done)
        if pipeline and done.batches:
            _materialize(stay, pipeline, done)


class _Landed:
    """What was landed since the last materialization, the seconds that took, and the batch before."""

    def __init__(self) -> None:
        self.batches = list[LandedBatch]()
        self.before = list[LandedBatch]()
        self.seconds = 0.0

    def restart_period(self) -> None:
        self.before, self.batches, self.seconds = self.batches[-1:] or self.before, [], 0.0


def _land(stay: Staying, pipeline: Pipeline, done: _Landed) -> None:
    tables = [table_key(table) for table in resident_tables(stay.launch.spec)]

    def work() -> None:
        for batch in protocol.land(pipeline, 0):
            done.batches.append(batch)
            newest = [*done.before, *done.batches][-2:]
            if broken := [r for r in checks.landing_results(stay.key, newest) if not r.passed]:
                stay.require(broken)
            stay.ring(tables)
            if stay.is_over():
                return

    began = time.monotonic()
    stay.limited(pipeline.spec.batch.time_limit_seconds, pipeline, ["landing"], work)
    done.seconds += time.monotonic() - began


def _materialize(stay: Staying, pipeline: Pipeline, done: _Landed) -> None:
    results = checks.landing_results(stay.key, [*done.before, *done.batches])
    results.append(checks.fields_result(stay.key, pipeline.spec, pipeline.intermediate.landed().batches))
    batches, rows = done.batches, metadata.total(done.batches).landed
    open_lineage.send_landed(pipeline, rows)
    shown_facts = shown(pipeline, batches, done.seconds)
    done.restart_period()
    stay.observe_topics(len(batches), rows)
    version = shown_facts.get("data_version", dg.DataVersion("")).value
    stay.materialize(shown_facts["metadata"], results, version or None, batches=len(batches), rows=rows)
