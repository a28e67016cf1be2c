"""`batchmerge run`: one run of a pipeline's Dagster job, in this process."""

from __future__ import annotations

import sys
from math import ceil
from typing import TYPE_CHECKING

import click

from jobs.connections_file import load_connections
from jobs.members.known_topics import known_member
from jobs.time_limit import with_timeout
from orchestration.cli import failure_code
from orchestration.cli.progress import engine_log
from orchestration.files import open_pipeline, pipeline_spec, split_name
from resources.errors import BatchmergeError

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.tables import Table
    from orchestration.cli.job_runs import RunResult

# Seconds for one look at Kafka.
_PATIENCE = 15


@click.command()
@click.argument("pipeline")
@click.option("--until-caught-up", is_flag=True, help="Land all that Kafka has now, batch after batch.")
@click.option("--max-batches", type=click.IntRange(min=0), help="Land at most this many batches (0: until caught up).")
@click.option("--no-wait", is_flag=True, help="Do not wait for another run that holds a table: exit 3.")
@click.option("--although-paused", is_flag=True, help="Run also if somebody has paused the pipeline, or a table of it.")
def run(pipeline: str, until_caught_up: bool, max_batches: int | None, no_wait: bool, although_paused: bool) -> None:
    """Run PIPELINE: land new records of Kafka, and merge them into every table. PIPELINE/TOPIC (`for_each`) runs that
    topic alone.

    Dagster shows the run like any other (`batchmerge ui`). Exit code 2: you must fix something; 3: try again later.
    Tables that were merged before the error stay merged.
    """
    if until_caught_up and max_batches is not None:
        raise click.UsageError("give --until-caught-up or --max-batches, not both")
    name, spec, topics = launched(pipeline)
    config: dict[str, object] = {"until_caught_up": until_caught_up, **topics}
    if max_batches is not None:
        config["max_batches"] = max_batches
    if (until_caught_up or max_batches is not None) and spec.source.for_each is None:
        _say_what_is_ahead(pipeline, max_batches)
    advance(name, spec, config, wait=not no_wait, although_paused=although_paused)


def launched(name: str) -> tuple[str, PipelineSpec, dict[str, object]]:
    """The pipeline whose job to run, its file, and the steps' options that limit the run to one topic, if `name` has
    one."""
    spec, (pipeline, topic) = pipeline_spec(name), split_name(name)
    if topic is None:
        return pipeline, spec, {}
    known_member(pipeline, spec, topic)
    return pipeline, spec, {"topics": [topic]}


def advance(
    pipeline: str,
    spec: PipelineSpec,
    config: dict[str, object],
    *,
    only: Table | None = None,
    wait: bool = True,
    although_paused: bool = False,
) -> None:
    """Runs the pipeline in this process and shows the run. If the run failed, the process ends with its exit code.

    Args:
        only: merge this table only, and land nothing.

    Raises:
        Paused: somebody has paused the pipeline, and `although_paused` is false.
    """
    # Imported here, so that a wrong name is reported at once.
    from orchestration.cli.instance import dagster_instance
    from orchestration.cli.job_runs import definitions_of, run_job
    from orchestration.names import ALTHOUGH_PAUSED_TAG, landing_key, table_key
    from orchestration.pauses import read_pauses, require_not_paused

    with engine_log(), dagster_instance() as instance:
        assets, tags = [table_key(only)] if only else None, {ALTHOUGH_PAUSED_TAG: "true"}
        if not although_paused:
            tags, paused = {}, read_pauses(instance, pipeline, spec)
            require_not_paused(paused)
            if paused.tables and not only:
                tables = [key for key in map(table_key, spec.tables) if key not in paused.tables]
                assets = [landing_key(pipeline), *tables]
            for key in paused.tables:
                click.echo(f"left out: {paused.reason(key)}", err=True)
        result = run_job(
            instance, definitions_of(pipeline, spec), pipeline, config, tags=tags, wait=wait, assets=assets
        )
    finish(result, pipeline)


def _say_what_is_ahead(name: str, max_batches: int | None) -> None:
    """Prints how many batches will be landed, before how many merges. The run itself reports errors."""
    from orchestration.sensors.lag import look

    try:
        pipeline = open_pipeline(name, load_connections())
        waits = with_timeout(_PATIENCE, "Kafka", lambda: look(pipeline).landing)
    except BatchmergeError:
        return
    size = pipeline.spec.batch.max_records
    batches = min(ceil(waits / size), max_batches or waits)
    tables = len(pipeline.tables)
    then = {0: "then each table takes", 1: "then the table takes"}.get(
        tables, f"then each of the {tables} tables takes"
    )
    as_batches = "1 batch is" if batches == 1 else f"{batches:,} batches of up to {size:,} are"
    plan = f"{waits:,} records wait in Kafka: {as_batches} landed first, {then} all that it lacks at once"
    click.echo(plan, err=True)


def finish(result: RunResult, pipeline: str) -> None:
    """Shows the run. If it failed, the process ends with its exit code."""
    from orchestration.cli.report import show_run

    show_run(result, pipeline)
    if not result.success:
        sys.exit(failure_code([result.transient]))
