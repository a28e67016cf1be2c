"""`batchmerge plan`: what the next run would do."""

from __future__ import annotations

import sys

import click

from jobs.connections_file import load_connections
from jobs.planning.run_plan import MembersPlan, RunPlan, members_plan_text, plan_members, plan_run, plan_text
from orchestration.cli import failure_code, output
from orchestration.files import open_members, open_pipeline
from resources.errors import TransientError


@click.command()
@click.argument("pipeline")
@click.option("--sql/--no-sql", default=True, help="Show the merge statements.", show_default=True)
def plan(pipeline: str, sql: bool) -> None:
    """Show what the next run of PIPELINE would do, without doing it.

    Shows the offsets of the next batch, the batches that wait for each table, tables and columns that would be made,
    the SQL, and the commit. Exit code 2: the run would fail until you fix something; 3: try again later.
    """
    connections = load_connections()
    members = open_members(pipeline, connections)
    found: RunPlan | MembersPlan
    if members is None:
        found = plan_run(open_pipeline(pipeline, connections))
        output.say(plan_text(found, with_sql=sql))
    else:
        found = plan_members(members)
        output.say(members_plan_text(found, with_sql=sql))
    output.result(found)
    if found.problems:
        sys.exit(failure_code(isinstance(problem, TransientError) for problem in found.problems))
