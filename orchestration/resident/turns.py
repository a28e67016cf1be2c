"""A continuous step holds its table's pool only while it works, so that replays and maintenance get their turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import dagster as dg
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext

from orchestration.pool_waits import PoolWaits, waiting_for_pools

# Seconds between two looks whether the step that waits is over.
_LOOK = 5.0


class Over(Exception):
    """The step has nothing more to do."""


@dataclass
class Turns:
    """The turns of one step at one pool."""

    context: dg.OpExecutionContext
    pool: str
    _claims: InstanceConcurrencyContext = field(init=False)

    def __post_init__(self) -> None:
        self._claims = InstanceConcurrencyContext(self.context.instance, self.context.run)

    @contextmanager
    def turn(self, is_over: Callable[[], bool]) -> Iterator[None]:
        """Waits until nobody else works on the table, asleep and saying for whom.

        Raises:
            Over: the step was over before its turn came.
        """
        step, looked = self.context.get_step_execution_context().step.key, time.monotonic()
        with self._claims, waiting_for_pools(PoolWaits(self.context.instance, self.context.log.info)):
            while not self._claims.claim(self.pool, step):
                # It sleeps where it claims.
                if time.monotonic() - looked > _LOOK:
                    looked = time.monotonic()
                    if is_over():
                        raise Over
            try:
                yield
            finally:
                self._claims.free_step(step)
