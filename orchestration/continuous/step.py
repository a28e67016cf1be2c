"""What the steps of a continuous run have in common: when they work, when they end, and what they report."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import dagster as dg

from jobs.members.members import Members
from jobs.pipeline import Pipeline
from jobs.spec.tables import Table
from orchestration import names
from orchestration.components.failures import as_failures, raise_for_checks
from orchestration.components.launch import Launch
from orchestration.components.progress import engine_log_in_run
from orchestration.continuous.decision import LONGEST_PAUSE
from orchestration.continuous.pace import Bell, ring, ticks
from orchestration.doubled import doubled
from orchestration.pools.pool_waits import PoolWaits
from orchestration.pools.turns import Over, turn
from orchestration.runs import current_run
from orchestration.sensors.idle import again_after
from orchestration.sensors.lag import look_at, topic_points
from orchestration.sensors.waiting import Waiting
from resources.errors import BatchmergeError

# Seconds until a step's first materialization.
_FIRST_REPORT = 10.0
# Longest time in seconds between two materializations of a step that has changes.
_REPORT_EVERY = 300.0
# Seconds until a check whose result has not changed is reported again.
_CHECKS_EVERY = 300.0
# Seconds until the run's log repeats the same warning.
_WARN_EVERY = 60.0


def report_after(reports: int) -> float:
    """Seconds until the next materialization, after this many of them.

    Short at first, later as long as between runs of a schedule, since Dagster's pages get slow with many
    (`tests/benchmarks/ui.py`).
    """
    return doubled(_FIRST_REPORT, reports, _REPORT_EVERY)


class StepConfig(dg.Config):
    """What the sensor passes to a step that failed in an earlier run: when it may work again, and its error."""

    not_before: float = 0.0
    because: str = ""


class Work(Protocol):
    """The work of one step, which knows what was done since its last report."""

    @property
    def has_changes(self) -> bool:
        """Whether there is something to report."""

    def tick(self) -> None:
        """Does what there is to do now."""

    def report(self) -> None:
        """Materializes the assets of the step."""


@dataclass
class ContinuousStep:
    """One step.

    Attributes:
        key: the asset that the step writes; with `commit: together` that of the first table.
        table: the table of that asset; None for the landing.
    """

    context: dg.OpExecutionContext
    launch: Launch
    config: StepConfig
    key: dg.AssetKey
    pool: str
    table: Table | None = None
    _checks: dict[dg.AssetCheckKey, tuple[object, float]] = field(default_factory=dict)
    _reported_at: float = field(default_factory=time.monotonic)
    _reports: int = 0
    _observed: Waiting | None = None
    _observed_rates: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Not by the clock of the day, which may be set back.
        self._works_from = time.monotonic() + min(self.config.not_before - time.time(), LONGEST_PAUSE)
        self._longest = again_after(self.launch.spec.freshness)

    def open(self) -> Pipeline:
        return self.launch.open(self.context.run_id)

    def members(self) -> Members:
        """The members of a pipeline with many tables."""
        return self.launch.members(self.context.run_id)

    @property
    def tables(self) -> list[Table]:
        """The step's own table, or with `commit: together` all of them; none for the landing."""
        if self.table is None:
            return []
        return list(self.launch.spec.tables) if self.launch.spec.commit == "together" else [self.table]

    def of(self, table: Table) -> ContinuousStep:
        """This step as the reporter of another one of its tables."""
        if table is self.table:
            return self
        return ContinuousStep(self.context, self.launch, self.config, names.table_key(table), self.pool, table)

    def run(self, begin: Callable[[ContinuousStep], Work]) -> None:
        """Works at every tick and reports what was done, until the step is over. Errors end it as in any run."""
        current_run.begin(self.context.instance, self.launch.name, self.context.run_id)
        interval = self.launch.spec.interval_seconds
        assert interval is not None
        with (
            as_failures(self.launch.spec.retry, self.context.retry_number),
            engine_log_in_run(self.context.log, logging.WARNING, _WARN_EVERY),
            closing(Bell(self.context.run_id, names.continuous_op(self.launch.name, self.key))) as bell,
            suppress(Over),
        ):
            if self.config.because:
                until = datetime.fromtimestamp(self.config.not_before, UTC)
                self.context.log.info("waits until %s UTC, after: %s", f"{until:%H:%M:%S}", self.config.because)
            work: Work | None = None
            for _ in ticks(interval, bell, self.is_over):
                if self._waits():
                    continue
                # Begun now: after a failure, as by a mistake in a file, the step has to wait first.
                work = work or begin(self)
                work.tick()
                if self.is_due(work.has_changes):
                    work.report()
            if work and work.has_changes:
                work.report()

    def is_over(self) -> bool:
        """Whether a newer continuous run has begun, the file has no `interval` any more, or somebody has paused the
        pipeline."""
        reason = current_run.reason_to_end(self.context.instance, self.launch.name, self.context.run_id)
        if reason := reason or self.launch.reason_to_stop(self.context):
            self.context.log.info("ends: %s", reason)
        return reason is not None

    def _waits(self) -> bool:
        """Whether the step skips this tick: it failed a short while ago, or somebody has paused one of its tables."""
        paused = any(self.launch.reason_to_stop(self.context, table) for table in self.tables)
        return paused or time.monotonic() < self._works_from

    def turn(self) -> AbstractContextManager[None]:
        """Holds the table's pool. Raises Over: the step was over before it got the pool."""
        waits = PoolWaits(self.context.instance, self.context.log.info)
        return turn(self.context, [self.pool], self.is_over, waits)

    def ring(self, tables: Sequence[dg.AssetKey]) -> None:
        ring(self.context.run_id, [names.continuous_op(self.launch.name, key) for key in tables])

    def is_due(self, has_changes: bool) -> bool:
        """Whether a materialization is due: soon after changes, more rarely without any."""
        after = min(report_after(self._reports), self._longest) if has_changes else self._longest
        return time.monotonic() - self._reported_at >= after

    def observe_topics(self, batches: int, rows: int) -> None:
        """Adds points to the plots of the topics, since Dagster plots one an hour only for a table. Adds none if a
        system does not answer."""
        with suppress(BatchmergeError):
            seen = look_at(self.launch.name, self.launch.spec)
            rates = self._rates(batches, rows)
            # Other rates are for all topics: one that is quiet now would show an old rate for good.
            last = self._observed if rates == self._observed_rates else None
            for point in topic_points(self.launch.name, self.launch.spec, seen, last, lambda _: rates):
                self.context.log_event(point)
            self._observed, self._observed_rates = seen, rates

    def _rates(self, batches: int, rows: int) -> dict[str, float]:
        minutes = max((time.monotonic() - self._reported_at) / 60, 1 / 60)
        return {
            "batches per minute": round(batches / minutes, 1),
            "rows per minute": round(rows / minutes, 1),
        }

    def materialize(
        self,
        shown: Mapping[str, Any],
        results: Sequence[dg.AssetCheckResult],
        version: str | None,
        *,
        batches: int,
        rows: int,
    ) -> None:
        """Reports a materialization of the current hour, with what was done since the last one, and its checks.

        Args:
            version: the table's committed commit id.
        """
        rates = self._rates(batches, rows)
        self._reported_at = time.monotonic()
        self._reports += 1
        self.context.log_event(
            dg.AssetMaterialization(
                self.key,
                partition=f"{datetime.now(UTC):%Y-%m-%d-%H:00}",
                metadata={**shown, **rates},
                tags={"dagster/data_version": version} if version else None,
            )
        )
        self.require(results)

    def require_passed(self, results: Sequence[dg.AssetCheckResult]) -> None:
        """As `require`, but reports only checks that have failed: between two materializations."""
        self.require([one for one in results if not one.passed])

    def require(self, results: Sequence[dg.AssetCheckResult]) -> None:
        """Reports checks whose result has changed, and stops the step where an invariant is broken."""
        for one in results:
            assert one.check_name
            # A table's step checks what is landed too.
            check = dg.AssetCheckKey(one.asset_key or self.key, one.check_name)
            said, now = (one.passed, one.description), time.monotonic()
            before, at = self._checks.get(check, (None, 0.0))
            if said != before or now - at >= _CHECKS_EVERY:
                self._checks[check] = (said, now)
                evaluation = dg.AssetCheckEvaluation(
                    asset_key=check.asset_key,
                    check_name=one.check_name,
                    passed=one.passed,
                    metadata=one.metadata,
                    severity=one.severity,
                    description=one.description,
                )
                self.context.log_event(evaluation)  # type: ignore[arg-type]  # its code takes them
        raise_for_checks(list(results), "/".join(self.key.path))
