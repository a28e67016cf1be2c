"""`batchmerge run`: one run of a pipeline's Dagster job, in this process."""

from __future__ import annotations

import sys

import click

from orchestration.cli.instance import dagster_instance
from orchestration.cli.job_runs import RunResult, run_job
from orchestration.cli.progress import engine_log
from orchestration.cli.report import show_run
from orchestration.files import pipeline_spec


@click.command()
@click.argument("pipeline")
@click.option("--until-caught-up", is_flag=True, help="Land batch after batch until Kafka has nothing more.")
@click.option("--max-batches", type=click.IntRange(min=0), help="Land at most so many batches (0: until caught up).")
@click.option("--no-wait", is_flag=True, help="Do not wait for another run that holds a table: exit 3.")
def run(pipeline: str, until_caught_up: bool, max_batches: int | None, no_wait: bool) -> None:
    """Advance PIPELINE: land what is new in Kafka, merge it into every table.

    The run shows up in Dagster like any other (`batchmerge ui`). Exit code 2: something has to be mended; 3: try again
    later. What other tables have got stays.
    """
    if until_caught_up and max_batches is not None:
        raise click.UsageError("give --until-caught-up or --max-batches, not both")
    pipeline_spec(pipeline)
    # Imported late: reading all pipeline files takes a second, a wrong name should not.
    from orchestration.definitions import defs

    config: dict[str, object] = {"until_caught_up": until_caught_up}
    if max_batches is not None:
        config["max_batches"] = max_batches
    with engine_log(), dagster_instance() as instance:
        result = run_job(instance, defs(), pipeline, config, wait=not no_wait)
    finish(result)


def finish(result: RunResult) -> None:
    """Shows the run and ends the process with its exit code."""
    show_run(result)
    if not result.success:
        failed = [step for step in result.steps if step.problem]
        sys.exit(3 if all(step.transient for step in failed) else 2)
