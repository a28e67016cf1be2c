"""The executor of the daemon's runs: every step in a process of its own, as with Dagster's own executor. Besides, the
run's tags name its process, its steps' processes carry its id, and waiting for pools takes no processor time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import dagster as dg
from dagster._core.definitions.executor_definition import multiple_process_executor_requirements
from dagster._core.events import DagsterEvent
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.multiprocess import MultiprocessExecutor

from jobs import __name__ as _JOBS
from orchestration.names import WORK_BEGUN, WORK_TAG
from orchestration.pools.pool_waits import PoolWaits, waiting_for_pools
from orchestration.runs.run_process import RUN_VARIABLE, process_tags
from orchestration.runs.run_queue import counting_while_young
from resources import __name__ as _RESOURCES

# What the processes of a pipeline's steps import: in the warm process, or in the fork server of a run without one.
PRELOAD = (
    f"{__package__}.components.pipeline",
    f"{_JOBS}.landing.new_columns",
    f"{_RESOURCES}.spark",
    "pyiceberg.catalog.sql",
    "pyspark.sql.connect.session",
)


class _StepProcesses(MultiprocessExecutor):
    def execute(self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan) -> Iterator[DagsterEvent]:
        instance, run = plan_context.instance, plan_context.dagster_run
        # Dagster copies the tags of a run to the run that retries it, which counts again.
        begun = {WORK_TAG: WORK_BEGUN} if WORK_TAG in run.tags else {}
        instance.add_run_tags(run.run_id, {**process_tags(run.run_id), **begun})
        # What is started from here on inherits it: so the steps of a killed run are found.
        os.environ[RUN_VARIABLE] = run.run_id

        def report(line: str) -> None:
            instance.report_engine_event(line, run)

        counting = counting_while_young(instance, run.run_id) if begun else nullcontext()
        with waiting_for_pools(PoolWaits(instance, report)), counting:
            yield from super().execute(plan_context, execution_plan)


def step_processes(max_concurrent: int, preload: Sequence[str] = ("dagster",)) -> dg.ExecutorDefinition:
    """The executor of a job, with at most `max_concurrent` steps at once.

    Args:
        preload: modules that the steps' processes import; their fork server does it once per run.
    """

    @dg.executor(name="step_processes", requirements=multiple_process_executor_requirements())
    def executor(context: dg.InitExecutorContext) -> MultiprocessExecutor:
        del context
        return _StepProcesses(
            retries=RetryMode.ENABLED,
            max_concurrent=max_concurrent,
            start_method="forkserver",
            explicit_forkserver_preload=list(preload),
        )

    return executor
