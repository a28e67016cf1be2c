"""`batchmerge pause | resume | restart`: stop and start by hand what runs by itself."""

from __future__ import annotations

import getpass
import os
import socket

import click

from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table, table_named
from orchestration import pauses
from orchestration.cli import output
from orchestration.cli.instance import dagster_instance
from orchestration.cli.progress import engine_log
from orchestration.cli.run import advance
from orchestration.files import pipeline_spec, split_name
from orchestration.runs.runs_about import runs_to_end
from orchestration.runs.stopping import stop_runs
from orchestration.sensors.busy import runs_of
from resources.errors import ConfigurationError


@click.command()
@click.argument("pipeline")
@click.argument("table", required=False)
def pause(pipeline: str, table: str | None) -> None:
    """Pause PIPELINE: no schedule, no trigger, no maintenance and no run by hand starts until it is resumed.

    With TABLE only that table is paused: landing and the other tables go on, and the table catches up when it is
    resumed. Runs in progress end after their current batch. You can still start replays.
    """
    pipeline, spec, wanted = _named(pipeline, table)
    with dagster_instance() as instance:
        made = pauses.pause(instance, pipeline, spec, wanted, _who())
        runs = [run.run_id for run in runs_of(instance, pipeline, spec)]
    end = f"batchmerge resume {pipeline}" + (f" '{table}'" if table else "")
    output.say(f"{table or pipeline} is {made}; `{end}` lets it go on")
    for run_id in runs:
        output.say(f"run {run_id[:8]} is under way: it lands and merges no further batch")
    output.result({"pipeline": pipeline, "table": table, "paused": made, "runs": runs})


@click.command()
@click.argument("pipeline")
@click.argument("table", required=False)
def resume(pipeline: str, table: str | None) -> None:
    """Resume PIPELINE with all its tables, or only TABLE, at the next tick of its schedule or sensor."""
    pipeline, spec, wanted = _named(pipeline, table)
    with dagster_instance() as instance:
        ended = pauses.resume(instance, pipeline, spec, wanted, _who())
    for line in ended or [f"{table or pipeline} was not paused"]:
        output.say(f"resumed: {line}" if ended else line)
    if spec.paused:
        output.say(f"{pipeline} still starts nothing by itself: `paused: true` is in its file")
    output.result({"pipeline": pipeline, "table": table, "resumed": ended})


@click.command()
@click.argument("pipeline")
@click.argument("table", required=False)
@click.option("--although-paused", is_flag=True, help="Run also if somebody has paused it.")
def restart(pipeline: str, table: str | None, although_paused: bool) -> None:
    """End all runs of PIPELINE (hanging ones, backfills and maintenance too), free their pools, and run it here.

    With TABLE the new run merges only that table. Nothing is lost: the run continues from the committed offsets.
    """
    pipeline, spec, wanted = _named(pipeline, table)
    with engine_log(), dagster_instance() as instance:
        if not although_paused:
            pauses.require_not_paused(pauses.read_pauses(instance, pipeline, spec))
        for line in stop_runs(instance, runs_to_end(instance, pipeline, spec)):
            output.say(line)
    advance(pipeline, spec, {}, only=wanted, although_paused=although_paused)


def _named(pipeline: str, table: str | None) -> tuple[str, PipelineSpec, Table | None]:
    """The pipeline's name, without the `/` with which shells complete its folder; its file, and the table.

    Raises:
        ConfigurationError: there is no such pipeline or table, or one topic is named.
    """
    spec, (name, topic) = pipeline_spec(pipeline), split_name(pipeline)
    if topic:
        raise ConfigurationError(
            "one topic cannot be paused, resumed or restarted: a step works on all topics",
            where=f"pipeline {name}",
            remedy=f"name {name} alone, or with it one of {', '.join(repr(one.title) for one in spec.tables)}",
        )
    # An empty name, as of a variable that is not set, is not all tables.
    return name, spec, None if table is None else table_named(name, spec.tables, table)


def _who() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as containers have
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
