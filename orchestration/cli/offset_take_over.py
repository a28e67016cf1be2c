"""`batchmerge offsets take-over`: a pipeline goes on with the tables of one that is gone, or had another name."""

from __future__ import annotations

import click

from jobs.connections_file import load_connections
from jobs.take_over import TakeOver, plan_take_over
from orchestration.cli import output
from orchestration.cli.offset_reset import require_idle
from orchestration.files import open_pipeline


@click.command("take-over")
@click.argument("pipeline")
@click.option("--from", "other", required=True, help="The pipeline that has written the tables so far.")
@click.option("--yes", is_flag=True, help="Do it. Without it the command only shows what it would do.")
def take_over(pipeline: str, other: str, yes: bool) -> None:
    """Go on with the tables of another pipeline, for example under a new name; rows and offsets stay.

    The other pipeline's file has to be gone, or its tables taken out of it: it cannot write them any more.
    """
    opened = open_pipeline(pipeline, load_connections())
    planned = plan_take_over(opened, other)
    output.say(_says(planned, pipeline, other))
    if not yes:
        output.say("Nothing was changed. Add --yes to do it.")
        output.result({"tables": [], "done": False})
        return
    require_idle(opened)
    done = planned.carry_out(opened)
    output.say(f"Done: {', '.join(done)}" if done else f"Pipeline {other} has no state of these tables.")
    output.result({"tables": done, "done": bool(done)})


def _says(planned: TakeOver, pipeline: str, other: str) -> str:
    names = ", ".join(table.name for table in planned.tables)
    if planned.base is None:
        return f"{names}: pipeline {other} writes them no more, pipeline {pipeline} does"
    return f"{names}: pipeline {pipeline} goes on where batch {planned.base.batch_number} of pipeline {other} ended"
