"""`batchmerge offsets take-over`: a pipeline goes on with the tables of one that is gone, or had another name."""

from __future__ import annotations

from collections.abc import Sequence

import click

from jobs.connections_file import load_connections
from jobs.members.members import Members
from jobs.resets.take_over import TakeOver, carry_out_each, plan_each, plan_take_over
from jobs.spec.members import member_name
from orchestration.cli import output
from orchestration.cli.offset_reset import require_idle
from orchestration.files import open_members, open_pipeline, raise_most_terminal, split_name


@click.command("take-over")
@click.argument("pipeline")
@click.option("--from", "other", required=True, help="The pipeline that has written the tables so far.")
@click.option("--yes", is_flag=True, help="Do it. Without --yes the command only shows what it would do.")
def take_over(pipeline: str, other: str, yes: bool) -> None:
    """Take over the tables of another pipeline, for example after a rename; rows and offsets stay.

    First remove the other pipeline's file, or these tables from that file: the other pipeline cannot write them any
    more. With `for_each` the tables of all topics are taken over, each from the same topic of the other pipeline.
    """
    members = open_members(pipeline, load_connections())
    if members is None or members.topics:
        _of_one(pipeline, other, yes)
    else:
        _of_each(members, other, yes)


def _of_one(name: str, other: str, yes: bool) -> None:
    before, topic = split_name(other)
    pipeline = open_pipeline(name, load_connections())
    planned = plan_take_over(pipeline, member_name(before, topic) if topic else other)
    _show([planned], pipeline.name)
    if yes:
        _require_idle(name, other)
    _end(planned.carry_out(pipeline) if yes else None, other)


def _of_each(members: Members, other: str, yes: bool) -> None:
    """Takes over the tables of all topics; of none if one of them cannot be taken over."""
    plans = plan_each(members, other)
    raise_most_terminal([one.problem for one in plans if one.problem])
    _show([one.done for one in plans if one.done], members.name)
    if not yes:
        _end(None, other)
        return
    _require_idle(members.name, other)
    outcomes = carry_out_each(members, other)
    _end([table for one in outcomes for table in one.done or ()], other)
    raise_most_terminal([one.problem for one in outcomes if one.problem])


def _require_idle(name: str, other: str) -> None:
    """Neither pipeline may run: what the other one commits after the plan would be written twice."""
    require_idle(name)
    require_idle(other, file_of=name)


def _show(plans: Sequence[TakeOver], pipeline: str) -> None:
    for planned in plans:
        names = ", ".join(table.name for table in planned.tables)
        if planned.base:
            at = f"batch {planned.base.batch_number} of pipeline {planned.other} ended"
            output.say(f"{names}: pipeline {pipeline} goes on where {at}")
        else:
            output.say(f"{names}: pipeline {planned.other} no longer writes them, pipeline {pipeline} does")


def _end(done: list[str] | None, other: str) -> None:
    """Args: done: the tables that were taken over; None: nothing was to be changed."""
    if done is None:
        output.say("Nothing was changed. Add --yes to do it.")
    else:
        output.say(f"Done: {', '.join(done)}" if done else f"Pipeline {other} has no state of these tables.")
    output.result({"tables": done or [], "done": bool(done)})
