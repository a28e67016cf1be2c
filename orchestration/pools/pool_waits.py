"""How a step waits for a pool that another run holds: asleep, and with a report who holds it since when.

Dagster itself claims a pool's slot in a loop without a pause and without a word, and without a daemon nobody frees the
slot of a dead run. Both are fixed around the one call that claims a slot: while a step waits, the process of the run
that holds the pool is checked, so that the slot of a dead run is free within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import dagster as dg
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.storage.event_log import SqlEventLogStorage

from orchestration.runs.dead_runs import end_dead_runs, name_of
from orchestration.runs.run_process import where
from resources.errors import Unavailable

Report = Callable[[str], None]

# Seconds to sleep in each turn of Dagster's loop.
_PAUSE = 0.02
# Longest time in seconds between two claims of the same pool.
_CLAIM_EVERY = 1.0
# Seconds between two checks whether the process of the run that holds the pool is alive.
_LOOK_EVERY = 2.0
# Seconds until the run that holds the pool is reported again.
_REPORT_EVERY = 60.0


def holders(instance: dg.DagsterInstance, pools: Collection[str], besides: str = "") -> list[str]:
    """Which other runs hold these pools, a line each: who, what, since when."""
    found = []
    for pool, info in instance.event_log_storage.get_concurrency_infos(sorted(pools)).items():
        since = {step.run_id: step.assigned_timestamp for step in info.pending_steps if step.assigned_timestamp}
        for run_id in sorted({slot.run_id for slot in info.claimed_slots} - {besides}):
            run = instance.get_run_by_id(run_id)
            process = where(run) if run else ""
            who = (name_of(run) if run else f"run {run_id[:8]}") + (f" ({process})" if process else "")
            found.append(f"{who} works on {pool}{_since(since.get(run_id))}")
    return found


def _since(begun: datetime | None) -> str:
    if begun is None:
        return ""
    begun = begun if begun.tzinfo else begun.replace(tzinfo=UTC)
    seconds = (datetime.now(UTC) - begun).total_seconds()
    return f" since {begun.astimezone(UTC):%H:%M:%S} UTC ({max(0.0, seconds):.0f} s)"


@dataclass
class PoolWaits:
    """How the steps of one run wait for pools.

    Attributes:
        wait: False: a step whose pool is held ends the run instead.
        refusal: the error of a step that was not to wait.
    """

    instance: dg.DagsterInstance
    report: Report
    wait: bool = True
    refusal: Unavailable | None = None
    _looked: float = 0.0
    _reported_at: dict[str, float] = field(default_factory=dict)

    def after_refusal(self, claims: InstanceConcurrencyContext, pool: str, claim: str) -> None:
        """Sleeps after a refused claim of the pool, and says when to claim again."""
        now, is_free = time.monotonic(), False
        if now - self._looked > _LOOK_EVERY:
            self._looked = now
            freed = end_dead_runs(self.instance)
            for line in freed:
                self.report(line)
            is_free = bool(freed) or self._gave_free(pool)
            if not is_free:
                self._name_holders(pool, claims._run_id, now)
        time.sleep(_PAUSE)
        # Dagster itself would claim again after up to 15 s.
        soonest = 0.0 if is_free else time.time() + _CLAIM_EVERY
        claims._pending_timeouts[claim] = min(claims._pending_timeouts[claim], soonest)

    def _gave_free(self, pool: str) -> bool:
        """Whether the pool was free; then it is given to the claim that has waited longest.

        Dagster looks whether a pool is free before it queues a claim. If it is freed in between, nobody gives it to the
        claim, which would wait for ever.
        """
        storage = self.instance.event_log_storage
        if not (isinstance(storage, SqlEventLogStorage) and storage.has_unassigned_slots(pool)):
            return False
        storage.assign_pending_steps([pool])
        return True

    def _name_holders(self, pool: str, run_id: str, now: float) -> None:
        found = holders(self.instance, [pool], besides=run_id)
        if found and not self.wait:
            self.refusal = in_the_way(found)
            raise self.refusal
        if found and now - self._reported_at.get(pool, -_REPORT_EVERY) >= _REPORT_EVERY:
            self._reported_at[pool] = now
            self.report(f"waiting: {'; '.join(found)}")


def in_the_way(found: list[str]) -> Unavailable:
    """The error of a command with `--no-wait`."""
    return Unavailable(
        "; ".join(found), where="--no-wait", remedy="try again later, or leave --no-wait out to wait for it"
    )


@contextmanager
def waiting_for_pools(waits: PoolWaits) -> Iterator[None]:
    """Within it, steps of runs of this process wait for pools as `waits` says."""
    original = InstanceConcurrencyContext.claim

    def claim(self: InstanceConcurrencyContext, concurrency_key: str, step_key: str, step_priority: int = 0) -> bool:
        if original(self, concurrency_key, step_key, step_priority):
            return True
        waits.after_refusal(self, concurrency_key, step_key)
        return False

    InstanceConcurrencyContext.claim = claim  # type: ignore[method-assign]
    try:
        yield
    finally:
        InstanceConcurrencyContext.claim = original  # type: ignore[method-assign]
