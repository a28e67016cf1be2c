"""Does a command's work on a pipeline's tables as a Dagster run that holds the tables' pools.

So Dagster shows the command, it waits for runs that work on the tables, and later runs and the continuous run wait for
it. Its pools are free once its process has ended.
"""

import math
from collections.abc import Callable, Collection
from typing import TypeVar

import dagster as dg

from jobs.connections_file import load_connections
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from jobs.time_limit import with_timeout
from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import execute
from orchestration.cli.progress import engine_log
from orchestration.components.failures import as_failures
from orchestration.files import each_pipeline, most_terminal, pipeline_spec, split_name
from orchestration.names import COMMAND_TAG, COMMAND_WAITS, COMMAND_WORKS, PIPELINE_TAG, all_pools
from orchestration.pools.turns import turn
from orchestration.step_failures import failure_text, failures
from resources.errors import BatchmergeError, TerminalError

T = TypeVar("T")


def each_in_turn(
    name: str,
    command: str,
    wait: bool,
    work: Callable[[Pipeline], T | None],
    problems: Callable[[T], Collection[BatchmergeError]],
) -> tuple[list[T], list[BatchmergeError]]:
    """Does the work for the pipeline, or for each of its topics, while no other run works on the tables.

    Args:
        command: the run's job is `<pipeline>_<command>`.
        wait: whether to wait for runs that work on the tables.
        problems: gives the errors in a result; any of them makes the run a failed one.

    Returns:
        The results, and all errors.

    Raises:
        Unavailable: another run works on the tables, and `wait` is false.
        BatchmergeError: the work fails for the only pipeline.
        KeyboardInterrupt: the process was asked to end (INT, TERM).
    """
    connections, (pipeline, _) = load_connections(), split_name(name)
    spec = pipeline_spec(name)

    def until_the_end(pipeline: Pipeline) -> T | None:
        # Without a time limit, since each batch has its own: only so that the work ends with the process.
        return with_timeout(math.inf, pipeline.name, lambda: work(pipeline), pipeline.stop)

    def both() -> tuple[list[T], list[BatchmergeError]]:
        done, failed = each_pipeline(name, connections, until_the_end)
        return done, [*failed, *(problem for one in done for problem in problems(one))]

    with engine_log(), dagster_instance() as instance:
        return _run(instance, pipeline, spec, command, wait, both)


def _run(
    instance: dg.DagsterInstance,
    pipeline: str,
    spec: PipelineSpec,
    command: str,
    wait: bool,
    work: Callable[[], tuple[T, list[BatchmergeError]]],
) -> tuple[T, list[BatchmergeError]]:
    pools = all_pools(pipeline, spec)
    found, raised = list[tuple[T, list[BatchmergeError]]](), list[Exception]()

    @dg.op(name=command, out=dg.Out(dg.Nothing))
    def step(context: dg.OpExecutionContext) -> None:
        with as_failures():
            try:
                with turn(context, pools):
                    instance.add_run_tags(context.run_id, {COMMAND_TAG: COMMAND_WORKS})
                    found.append(work())
            except Exception as problem:
                raised.append(problem)
                raise
            if failed := most_terminal(found[0][1]):
                raise failed

    @dg.job(name=f"{pipeline}_{command}")
    def job() -> None:
        step()

    tags = {PIPELINE_TAG: pipeline, COMMAND_TAG: COMMAND_WAITS}
    result = execute(instance, job, tags, {}, wait, pools=pools)
    if raised:
        raise raised[0]
    if not found:
        why = map(failure_text, failures(result))
        remedy = "look at its page in Dagster (`batchmerge ui`)"
        raise TerminalError(
            " ".join(why) or "the run failed before the command's work began",
            where=f"run {result.run_id}",
            remedy=remedy,
        )
    return found[0]
