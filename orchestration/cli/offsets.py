"""`batchmerge offsets`: the offsets in Kafka, in the intermediate table and in every table; and moving them by hand.

`forget` is here; `orchestration.cli.offset_reset` and `orchestration.cli.offset_take_over` have the other commands.
"""

from __future__ import annotations

import sys

import click

from jobs.connections_file import load_connections
from jobs.lineage import next_batches
from jobs.offsets import Offsets
from jobs.pipeline import Pipeline
from orchestration.cli import failure_code, output
from orchestration.cli.offset_reset import require_idle, reset, set_offsets
from orchestration.cli.offset_take_over import take_over
from orchestration.files import each_pipeline, open_pipeline, pipeline_spec, raise_most_terminal
from resources.errors import BatchmergeError, TransientError


@click.group()
def offsets() -> None:
    """Show the offsets of a pipeline; set or reset them by hand."""


offsets.add_command(set_offsets)
offsets.add_command(reset)
offsets.add_command(take_over)


@offsets.command()
@click.argument("pipeline")
def show(pipeline: str) -> None:
    """Show next offsets per topic-partition: in Kafka, landed, and in every table of PIPELINE.

    A table that cannot be asked has no column. Exit code 2: then something needs a fix; 3: try again later.
    """
    columns, silent = dict[str, Offsets](), list[BatchmergeError]()
    spec = pipeline_spec(pipeline)

    def work(one: Pipeline) -> dict[str, Offsets]:
        # With `for_each` the tables of one entry share a column.
        named = dict(
            zip((d.name for d in one.destinations()), (f"{t.kind} {t.table}" for t in spec.tables), strict=False)
        )
        return {
            (named.get(name, name) if one.part_of else name): found for name, found in _columns(one, silent).items()
        }

    found, failed = each_pipeline(pipeline, load_connections(), work)
    for one in found:
        for name, offsets_ in one.items():
            columns[name] = {**columns.get(name, {}), **offsets_}
    output.result(columns)
    partitions = sorted({tp for found in columns.values() for tp in found})
    rows = [[tp, *(found.get(tp) for found in columns.values())] for tp in partitions]
    output.table(["topic-partition", *columns], rows)
    raise_most_terminal(failed)
    if silent:
        sys.exit(failure_code(isinstance(problem, TransientError) for problem in silent))


def _columns(pipeline: Pipeline, silent: list[BatchmergeError]) -> dict[str, Offsets]:
    """The columns; adds the errors of tables that cannot be asked to `silent`, and prints them."""
    topics = pipeline.topic_state()
    landed = pipeline.intermediate.committed()
    found: dict[str, Offsets] = {
        "first in Kafka": topics.first,
        "end in Kafka": topics.stable,
        "landed": landed.offsets if landed else {},
    }
    for destination in pipeline.destinations():
        try:
            state = destination.committed()
        except BatchmergeError as problem:
            click.echo(f"{destination.name}: {problem}", err=True)
            silent.append(problem)
            continue
        found[destination.name] = state.offsets if state else {}
    return found


@offsets.command()
@click.argument("pipeline")
@click.argument("table")
@click.option("--yes", is_flag=True, help="Do it. Without --yes the command only shows what it would do.")
def forget(pipeline: str, table: str, yes: bool) -> None:
    """Forget what TABLE, which was dropped, has committed: the next run creates it and fills it from landed batches.

    Only for tables whose committed state is stored outside of them. Refuses a table that has rows.
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
