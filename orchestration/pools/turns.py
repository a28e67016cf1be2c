"""Claims pools for a part of a step: who writes to a table holds its pool meanwhile, and not longer.

Ordinary steps have one pool by definition, which Dagster claims. A continuous step would hold it as long as it runs,
and a command's run needs the pools of several tables: so these claim their pools here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import dagster as dg
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext

from jobs.time_limit import raise_if_to_end
from orchestration.names import LANDING
from orchestration.pools.pool_waits import PoolWaits

# Seconds between two looks whether the step that waits is over.
_LOOK = 5.0


class Over(Exception):
    """Raised in a step that has nothing more to do."""


@contextmanager
def turn(
    context: dg.OpExecutionContext,
    pools: Collection[str],
    is_over: Callable[[], bool] | None = None,
    waits: PoolWaits | None = None,
) -> Iterator[None]:
    """Waits until nobody else works on these tables; then they are this step's alone.

    Args:
        waits: how to wait; None: as `waiting_for_pools` says.

    Raises:
        Over: the step was over before its turn came.
        KeyboardInterrupt: the step must end (`jobs.time_limit.ending_with`).
    """
    claims = InstanceConcurrencyContext(context.instance, context.run)
    key = context.get_step_execution_context().step.key
    # One claim for each pool, in one order, so that no two steps wait for each other. The landing comes last: it goes
    # on while the step waits for a table.
    order = sorted(pools, key=lambda pool: (pool.startswith(f"{LANDING}/"), pool))
    claimed = {pool: f"{key} at {pool}" for pool in order}

    def wait_for(pool: str, claim: str) -> None:
        looked = time.monotonic()
        while not claims.claim(pool, claim):
            raise_if_to_end()
            # Without `waits` the claim itself sleeps (`waiting_for_pools`).
            if waits:
                waits.after_refusal(claims, pool, claim)
            if is_over and time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                if is_over():
                    raise Over

    with claims:
        try:
            for pool, claim in claimed.items():
                wait_for(pool, claim)
            yield
        finally:
            for claim in claimed.values():
                claims.free_step(claim)
