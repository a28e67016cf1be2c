"""`batchmerge status`: how the services and the pipelines are, in plain words."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from resources.connections import data_folder
from resources.local import stack

if TYPE_CHECKING:
    from orchestration.cli.pipelines import PipelineStatus, Status, TableStatus

_DAEMON = {
    True: "Dagster's daemon runs: schedules and sensors start runs.",
    False: "No Dagster daemon runs: nothing starts by itself. `batchmerge ui` starts one; `batchmerge run` needs none.",
}
_WORDS = """
complete through: every record up to this time is in the table, of every partition (VTTS, valid-through timestamp)
dead letters: records that cannot be read, or that the table refuses: `batchmerge dead-letters list <pipeline>`"""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON: services and pipelines.")
def status(as_json: bool) -> None:
    """Show each service (state, process id, address, log) and each pipeline: whether it starts by itself, its last
    error, and per table the batch, the lag, up to when it is complete, and its dead letters.

    Exit code 3 if a service that was started does not answer, or a table cannot be asked.
    """
    # Imported late: Dagster and Spark take two seconds that the other commands here need not wait for.
    from orchestration.cli.pipelines import pipeline_status

    services, found = stack.status(data_folder()), pipeline_status()
    if as_json:
        shown = {"services": [s.model_dump() for s in services], **found.model_dump(mode="json")}
        click.echo(json.dumps(shown, indent=2))
    else:
        for line in [*map(_service, services), *_pipelines(found)]:
            click.echo(line)
    silent = any(one.state in ("silent", "died") for one in services)
    if silent or any(table.problem for pipeline in found.pipelines for table in pipeline.tables):
        sys.exit(3)


def _service(one: stack.ServiceStatus) -> str:
    ports = " ".join(f"{name}={port}" for name, port in one.ports.items())
    detail = one.reason or " ".join(
        part for part in (f"pid {one.pid}" if one.pid else "", ports, f"log {one.log}" if one.log else "") if part
    )
    return f"{one.name:<11}{one.state:<12}{detail}".rstrip()


def _pipelines(found: Status) -> list[str]:
    if not found.pipelines:
        return []
    lines = [_DAEMON[found.daemon], *(line for pipeline in found.pipelines for line in _pipeline(pipeline))]
    return [*lines, *_WORDS.splitlines()]


def _pipeline(pipeline: PipelineStatus) -> list[str]:
    about = [f"pipeline {pipeline.name}: {pipeline.problem or pipeline.starts}", *(f"  {run}" for run in pipeline.runs)]
    if pipeline.last_error:
        about.append(f"  last run failed: {pipeline.last_error}")
    return [*about, *(f"  {table.name:<32}{_table(table)}" for table in pipeline.tables)]


def _table(table: TableStatus) -> str:
    if table.problem:
        return table.problem
    lag = "unknown" if table.lag is None else f"{table.lag:,}"
    parts = [f"batch {table.batch or 0}", f"lag {lag}"]
    if table.vtts:
        parts.append(f"complete through {table.vtts:%Y-%m-%d %H:%M:%S} UTC")
    if table.dead_letters:
        parts.append(f"{table.dead_letters:,} dead letters")
    return ", ".join(parts)
