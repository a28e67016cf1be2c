"""`batchmerge up | down | status`: the local services of the data folder."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from resources.connections import data_folder
from resources.local import stack

if TYPE_CHECKING:
    from orchestration.cli.pipelines import PipelineStatus


@click.command()
@click.option("--only", metavar="NAMES", help="Services by name, with commas: kafka,spark. What they need comes along.")
def up(only: str | None) -> None:
    """Start the local services that are not running yet, and wait until they answer.

    They listen on 127.0.0.1 only and run until `batchmerge down`. Ports are chosen at the first start and kept.
    """
    names = [name.strip() for name in only.split(",") if name.strip()] if only is not None else None
    site = stack.up(data_folder(), names, click.echo)
    click.echo(f"connections are in {site.home / 'connections.yaml'}")


@click.command()
def down() -> None:
    """Stop the local services. Their data and their ports stay for the next `up`."""
    stack.down(data_folder(), click.echo)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON: services and pipelines.")
def status(as_json: bool) -> None:
    """Show each service (state, process id, address, log) and each pipeline (batch, lag, VTTS, last error).

    Exit code 3 if a service that was started does not answer, or a table cannot be asked.
    """
    # Imported late: Dagster and Spark take two seconds that the other commands here need not wait for.
    from orchestration.cli.pipelines import pipeline_status

    found, pipelines = stack.status(data_folder()), pipeline_status()
    if as_json:
        shown = {
            "services": [s.model_dump() for s in found],
            "pipelines": [p.model_dump(mode="json") for p in pipelines],
        }
        click.echo(json.dumps(shown, indent=2))
    else:
        for one in found:
            click.echo(_line(one))
        for pipeline in pipelines:
            click.echo(_pipeline_lines(pipeline))
    silent = any(one.state in ("silent", "died") for one in found)
    if silent or any(table.problem for pipeline in pipelines for table in pipeline.tables):
        sys.exit(3)


def _line(one: stack.ServiceStatus) -> str:
    ports = " ".join(f"{name}={port}" for name, port in one.ports.items())
    detail = one.reason or " ".join(
        part for part in (f"pid {one.pid}" if one.pid else "", ports, f"log {one.log}" if one.log else "") if part
    )
    return f"{one.name:<11}{one.state:<12}{detail}".rstrip()


def _pipeline_lines(pipeline: PipelineStatus) -> str:
    said = pipeline.problem or (f"last run failed: {pipeline.last_error}" if pipeline.last_error else "")
    lines = [f"pipeline {pipeline.name}" + (f": {said}" if said else "")]
    for table in pipeline.tables:
        lag = "unknown" if table.lag is None else f"{table.lag:,}"
        vtts = f", VTTS {table.vtts:%Y-%m-%d %H:%M:%S} UTC" if table.vtts else ""
        lines.append(f"  {table.name:<32}" + (table.problem or f"batch {table.batch or 0}, lag {lag}{vtts}"))
    return "\n".join(lines)
