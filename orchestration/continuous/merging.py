"""The tables of a continuous run: merged whenever they lack landed batches.

Each has a step of its own and its own pace; with `commit: together` the first one's step commits them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from jobs import protocol
from jobs.destinations.base import Destination
from jobs.merged import MergedBatches, MergedTable
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


class Merging:
    """Merges what is landed and not yet in the step's tables."""

    def __init__(self, step: ContinuousStep) -> None:
        self._step, self._pipeline = step, step.open()
        self._tables = [_TableProgress(step.of(table), self._pipeline.destination_of(table)) for table in step.tables]
        self._is_first_tick = True

    @property
    def has_changes(self) -> bool:
        return any(one.merged for one in self._tables)

    def tick(self) -> None:
        # At the first tick also without changes: a dead run may have left commit events unpublished.
        if self._is_first_tick or self._are_behind():
            self._merge()
        self._is_first_tick = False

    def _are_behind(self) -> bool:
        """Whether a table lacks landed batches, by the committed states."""

        def look() -> bool:
            landed = self._pipeline.intermediate.committed()
            return landed is not None and any(one.destination.lacks(landed.commit_id) for one in self._tables)

        return self._in_time(look)

    def _merge(self) -> None:
        pipeline = self._pipeline

        def work() -> list[MergedTable]:
            self._require_landed()
            if pipeline.spec.commit == "together":
                return protocol.merge_together(pipeline)
            return [MergedTable(one.destination, protocol.merge(pipeline, one.destination)) for one in self._tables]

        with self._step.turn():
            done = self._in_time(work)
        for one, table in zip(self._tables, done, strict=True):
            if merged := table.merged:
                one.merged = merged.since(one.merged)
                committed = one.destination.committed()
                one.step.require_passed(checks.table_results(one.step.key, committed, merged.batches, merged.batches))

    def _require_landed(self) -> None:
        """Stops the step if the landing's checks fail: broken batches are not merged."""
        merged = min(state.batch_number if state else 0 for one in self._tables for state in one.destination.states())
        # From the newest batch on that all tables have.
        landed = [batch for batch in self._pipeline.intermediate.landed().batches if batch.number >= merged]
        self._step.require_passed(checks.landing_results(landing_key(self._pipeline.name), landed))

    def report(self) -> None:
        """Reports what was merged since the last materialization, with facts that need a look at the tables."""
        pipeline = self._pipeline

        def look() -> list[TableResult]:
            return [settled(pipeline, one.destination, one.merged) for one in self._tables]

        with self._step.turn():
            found = self._in_time(look)
        ends = Ends.now(pipeline)
        for one, now in zip(self._tables, found, strict=True):
            table = one.step.table
            assert table
            results, shown = report(pipeline, one.step.key, table, now, None, ends)
            open_lineage.send_merged(pipeline, one.destination, table_columns(pipeline.spec, table), now.written)
            one.merged = None
            version = now.after.commit_id if now.after else None
            one.step.materialize(shown, results, version, batches=len(now.batches), rows=now.counts.changes)

    def _in_time(self, work: Callable[[], T]) -> T:
        """Does the work within the longest time limit of the tables."""
        limit = max(one.destination.table.time_limit_seconds for one in self._tables)
        where = ", ".join(one.destination.name for one in self._tables)
        return with_timeout(limit, where, work, self._pipeline.stop)
