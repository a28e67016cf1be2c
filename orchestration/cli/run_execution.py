"""A run in this process ends at once, and as cancelled, when the process is asked to end (INT, TERM).

Dagster looks for signals only while a step works: neither in the pause before another try, nor while a step waits for a
pool. And it takes a run that ends so for a failed one, which alerts somebody, unless the run was cancelled in Dagster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.events import DagsterEvent
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.active import ActiveExecution
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.executor.in_process import InProcessExecutor


@contextmanager
def ending_when_asked() -> Iterator[None]:
    """While it is entered, for the runs of this process."""
    sleep, execute = ActiveExecution.sleep_til_ready, InProcessExecutor.execute

    def interruptible_sleep(self: ActiveExecution) -> None:
        with dg.raise_execution_interrupts():
            sleep(self)

    def cancelled_execute(
        self: InProcessExecutor, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[DagsterEvent]:
        try:
            yield from execute(self, plan_context, execution_plan)
        except (KeyboardInterrupt, DagsterExecutionInterruptedError):
            plan_context.instance.report_run_canceling(plan_context.dagster_run, "The process was asked to end.")
            raise

    ActiveExecution.sleep_til_ready = interruptible_sleep  # type: ignore[method-assign]
    InProcessExecutor.execute = cancelled_execute  # type: ignore[method-assign]
    try:
        yield
    finally:
        ActiveExecution.sleep_til_ready = sleep  # type: ignore[method-assign]
        InProcessExecutor.execute = execute  # type: ignore[method-assign]
