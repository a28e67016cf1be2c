"""The steps of a run in this process, side by side: if one hangs, the others and their events go on.

Dagster's own executor in one process takes one step after the other, and a daemon's run has a process for each. Here
each step has a thread. INT and TERM reach the main thread only: it ends the work of all steps, waits a moment for their
last events, and raises the interrupt. The run ends as cancelled then: Dagster shows it as failed, unless it was
cancelled in Dagster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.events import DagsterEvent
from dagster._core.execution.compute_logs import create_compute_log_file_key
from dagster._core.execution.context.system import (
    PlanExecutionContext,
    PlanOrchestrationContext,
    StepExecutionContext,
)
from dagster._core.execution.plan.active import ActiveExecution
from dagster._core.execution.plan.execute_plan import dagster_event_sequence_for_step
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.executor import in_process
from dagster._core.executor.in_process import InProcessExecutor

from jobs.time_limit import ending_with
from resources.errors import Unavailable

# Seconds between two looks for steps that have become ready.
_LOOK = 0.1
# Seconds that steps have to end after an interrupt.
_PATIENCE = 15.0


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

    in_process.inprocess_execution_iterator = partial(_steps_side_by_side, at_once=at_once)
    InProcessExecutor.execute = cancelled_execute  # type: ignore[method-assign]
    try:
        yield
    finally:
        in_process.inprocess_execution_iterator = iterator
        InProcessExecutor.execute = execute  # type: ignore[method-assign]


def _steps_side_by_side(
    job_context: PlanExecutionContext, execution_plan: ExecutionPlan, at_once: int
) -> Iterator[DagsterEvent]:
    """Executes the plan, as `dagster._core.execution.plan.execute_plan.inner_plan_execution_iterator` does.

    Args:
        at_once: at most this many steps at once.

    Raises:
        DagsterExecutionInterruptedError: the process was asked to end.
        Unavailable: another run holds a step's pool, and the step must not wait. Steps that had begun are done.
    """
    instance, keys = job_context.instance, execution_plan.step_keys_to_execute
    logs = instance.compute_log_manager
    log_key = logs.build_log_key_for_run(job_context.run_id, create_compute_log_file_key())
    with (
        InstanceConcurrencyContext(instance, job_context.dagster_run) as pools,
        execution_plan.start(
            retry_mode=job_context.retry_mode,
            max_concurrent=at_once,
            instance_concurrency_context=pools,
            step_dependency_config=job_context.step_dependency_config,
        ) as active,
        logs.capture_logs(log_key) as log,
    ):
        yield DagsterEvent.capture_logs(job_context, list(keys), log_key, log)
        yield from _Steps(job_context, active).events()


class _Step(Thread):
    """Executes one step, and puts its events into a queue; None at its end."""

    def __init__(self, context: StepExecutionContext, queue: SimpleQueue[_Event], end: Event) -> None:
        super().__init__(daemon=True, name=context.step.key)
        self._step, self._queue, self._end = context, queue, end
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            with ending_with(self._end):
                for event in dagster_event_sequence_for_step(self._step):
                    self._queue.put((self, event))
        except BaseException as problem:
            self.problem = problem
        finally:
            self._queue.put((self, None))


_Event = tuple[_Step, DagsterEvent | None]


class _Steps:
    """The steps of a plan that are under way."""

    def __init__(self, job: PlanExecutionContext, active: ActiveExecution) -> None:
        self._job, self._active = job, active
        self._queue = SimpleQueue[_Event]()
        self._running = dict[str, _Step]()
        self._end = Event()

    def events(self) -> Iterator[DagsterEvent]:
        """The events of all steps, as they come."""
        try:
            yield from self._until_complete()
        except (KeyboardInterrupt, DagsterExecutionInterruptedError):
            yield from self._ended()
            raise
        finally:
            self._end.set()

    def _until_complete(self) -> Iterator[DagsterEvent]:
        try:
            while not self._active.is_complete:
                yield from self._start_ready()
                yield from self._heard()
        except Unavailable:
            while self._running:
                yield from self._heard()
            raise

    def _start_ready(self) -> Iterator[DagsterEvent]:
        for step in self._active.get_steps_to_execute():
            context = self._job.for_step(step, self._active.get_known_state())
            self._running[step.key] = _Step(context, self._queue, self._end)
            self._running[step.key].start()
        yield from self._active.concurrency_event_iterator(self._job)

    def _next(self) -> _Event | None:
        """The next event in the queue; None: no step has put one there for a moment."""
        try:
            return self._queue.get(timeout=_LOOK)
        except Empty:
            return None

    def _heard(self) -> Iterator[DagsterEvent]:
        """Passes the next event of a step on; handles the end of a step."""
        with dg.raise_execution_interrupts():
            if not self._running:
                self._active.sleep_til_ready()
                return
            found = self._next()
        if found is None:
            return
        step, event = found
        if event is not None:
            yield event
            self._active.handle_event(event)
            return
        is_last_try = self._forget(step)
        if step.problem:
            raise step.problem
        if is_last_try:
            self._active.verify_complete(self._job, step.name)
            yield from self._active.plan_events_iterator(self._job)

    def _ended(self) -> Iterator[DagsterEvent]:
        """Ends all steps, and passes their last events on. A step that does not end in time ends with the process."""
        self._end.set()
        latest = time.monotonic() + _PATIENCE
        while self._running and time.monotonic() < latest:
            if (found := self._next()) is None:
                continue
            step, event = found
            if event is None:
                self._forget(step)
            else:
                yield event

    def _forget(self, step: _Step) -> bool:
        """Removes a step that has ended; False: another try of the same step has begun already."""
        if self._running.get(step.name) is not step:
            return False
        del self._running[step.name]
        return True
