"""How runs in this process execute: their steps side by side, and as cancelled when the process is asked to end.

Dagster shows a run that ends by INT or TERM as failed, unless the run was cancelled in Dagster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.events import DagsterEvent
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.executor import in_process
from dagster._core.executor.in_process import InProcessExecutor

from orchestration.cli.steps import steps_side_by_side


@contextmanager
def executing_side_by_side(at_once: int) -> Iterator[None]:
    """Within it the runs of this process execute at most `at_once` steps side by side."""
    iterator, execute = in_process.inprocess_execution_iterator, InProcessExecutor.execute

    def cancelled_execute(
        self: InProcessExecutor, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[DagsterEvent]:
        try:
            yield from execute(self, plan_context, execution_plan)
        except (KeyboardInterrupt, DagsterExecutionInterruptedError):
            plan_context.instance.report_run_canceling(plan_context.dagster_run, "The process was asked to end.")
            raise

    in_process.inprocess_execution_iterator = partial(steps_side_by_side, at_once=at_once)
    InProcessExecutor.execute = cancelled_execute  # type: ignore[method-assign]
    try:
        yield
    finally:
        in_process.inprocess_execution_iterator = iterator
        InProcessExecutor.execute = execute  # type: ignore[method-assign]
