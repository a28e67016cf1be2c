"""`batchmerge offsets forget`: a table that was dropped on purpose is filled again."""

from __future__ import annotations

import click

from jobs.connections_file import load_connections
from jobs.lineage import next_batches
from jobs.pipeline import Pipeline
from orchestration.cli import output
from orchestration.cli.offset_reset import require_idle
from orchestration.files import open_pipeline
from resources.errors import BatchmergeError


@click.command()
@click.argument("pipeline")
@click.argument("table")
@click.option("--yes", is_flag=True, help="Do it. Without --yes the command only shows what it would do.")
def forget(pipeline: str, table: str, yes: bool) -> None:
    """Forget what TABLE has committed, after it was dropped: the next run creates and fills it from landed batches.

    For tables whose committed state is kept outside of them. Refuses a table that has rows.
    """
    opened = open_pipeline(pipeline, load_connections())
    destination = opened.destination(table)
    output.say(_says(opened, destination.name))
    if not yes:
        output.say("Nothing was changed. Add --yes to do it.")
        output.result({"table": destination.name, "done": False})
        return
    require_idle(pipeline)
    done = destination.drop_state()
    output.say("Done." if done else f"{destination.name}: nothing was committed, so there is nothing to forget.")
    output.result({"table": destination.name, "done": done})


def _says(pipeline: Pipeline, name: str) -> str:
    landed = pipeline.intermediate.landed()
    try:
        batches = next_batches(name, None, landed.batches, landed.complete)
    except BatchmergeError as problem:
        return f"The landed batches cannot fill it: {problem}"
    rows = sum(batch.counts.landed for batch in batches)
    return f"{name}: forgets its committed state; the next run fills it with {rows:,} changes of {len(batches)} batches"
