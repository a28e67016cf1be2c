"""The tables of a continuous run: merged whenever they lack landed batches.

Each has a step of its own and its own pace; with `commit: together` the first one's step commits them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jobs import protocol
from jobs.destinations.base import Destination
from jobs.merged import MergedBatches, MergedTable
from jobs.pipeline import Pipeline
from jobs.time_limit import with_timeout
from orchestration import open_lineage
from orchestration.components import checks
from orchestration.components.ends import Ends
from orchestration.components.merging import TableResult, report, settled
from orchestration.components.metadata import table_columns
from orchestration.continuous.step import ContinuousStep
from orchestration.names import landing_key

T = TypeVar("T")


@dataclass
class _TableProgress:
    """A table of the step, and what was merged into it since its last materialization."""

    step: ContinuousStep
    destination: Destination
    merged: MergedBatches | None = None


def merge_continuously(step: ContinuousStep) -> None:
    """Merges at every tick what is landed and not yet in the step's tables, until the step is over."""
    with step.at_work() as ticks:
        # Opened at the first tick: after a failure, as by a mistake in a file, the step has to wait first.
        pipeline: Pipeline | None = None
        tables = list[_TableProgress]()
        first = True
        for _ in ticks:
            if pipeline is None:
                pipeline = step.open()
                tables = [_TableProgress(step.of(table), pipeline.destination_of(table)) for table in step.tables]
            # At the first tick also without changes: a dead run may have left commit events unpublished.
            if first or _are_behind(pipeline, tables):
                _merge(step, pipeline, tables)
            first = False
            if step.is_due(any(one.merged for one in tables)):
                _materialize(step, pipeline, tables)
        if pipeline and any(one.merged for one in tables):
            _materialize(step, pipeline, tables)


def _are_behind(pipeline: Pipeline, tables: Sequence[_TableProgress]) -> bool:
    """Whether a table lacks landed batches, by the committed states."""

    def look() -> bool:
        landed = pipeline.intermediate.committed()
        return landed is not None and any(one.destination.lacks(landed.commit_id) for one in tables)

    return _in_time(pipeline, tables, look)


def _merge(step: ContinuousStep, pipeline: Pipeline, tables: Sequence[_TableProgress]) -> None:
    def work() -> list[MergedTable]:
        _require_landed(step, pipeline, tables)
        if pipeline.spec.commit == "together":
            return protocol.merge_together(pipeline)
        return [MergedTable(one.destination, protocol.merge(pipeline, one.destination)) for one in tables]

    with step.turn():
        done = _in_time(pipeline, tables, work)
    for one, table in zip(tables, done, strict=True):
        if merged := table.merged:
            one.merged = merged.since(one.merged)
            committed = one.destination.committed()
            one.step.require_passed(checks.table_results(one.step.key, committed, merged.batches, merged.batches))


def _require_landed(step: ContinuousStep, pipeline: Pipeline, tables: Sequence[_TableProgress]) -> None:
    """Stops the step if the landing's checks fail: broken batches are not merged."""
    merged = min(state.batch_number if state else 0 for one in tables for state in one.destination.states())
    # From the newest batch on that all tables have.
    landed = [batch for batch in pipeline.intermediate.landed().batches if batch.number >= merged]
    step.require_passed(checks.landing_results(landing_key(pipeline.name), landed))


def _materialize(step: ContinuousStep, pipeline: Pipeline, tables: Sequence[_TableProgress]) -> None:
    """Reports what was merged since the last materialization, with facts that need a look at the tables."""

    def look() -> list[TableResult]:
        return [settled(pipeline, one.destination, one.merged) for one in tables]

    with step.turn():
        found = _in_time(pipeline, tables, look)
    ends = Ends.now(pipeline)
    for one, now in zip(tables, found, strict=True):
        table = one.step.table
        assert table
        results, shown = report(pipeline, one.step.key, table, now, None, ends)
        open_lineage.send_merged(pipeline, one.destination, table_columns(pipeline.spec, table), now.written)
        one.merged = None
        version = now.after.commit_id if now.after else None
        one.step.materialize(shown, results, version, batches=len(now.batches), rows=now.counts.changes)


def _in_time(pipeline: Pipeline, tables: Sequence[_TableProgress], work: Callable[[], T]) -> T:
    """Does the work within the longest time limit of these tables."""
    limit = max(one.destination.table.time_limit_seconds for one in tables)
    return with_timeout(limit, ", ".join(one.destination.name for one in tables), work, pipeline.stop)
