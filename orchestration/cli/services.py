"""`batchmerge up | down | status`: the local services of the data folder."""

from __future__ import annotations

import json
import sys

import click

from resources.connections import data_folder
from resources.local import stack


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
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def status(as_json: bool) -> None:
    """Show each service: state, process id, address, log. Exit code 3 if one that was started does not answer."""
    found = stack.status(data_folder())
    if as_json:
        click.echo(json.dumps([one.model_dump() for one in found], indent=2))
    else:
        for one in found:
            click.echo(_line(one))
    if any(one.state in ("silent", "died") for one in found):
        sys.exit(3)


def _line(one: stack.ServiceStatus) -> str:
    ports = " ".join(f"{name}={port}" for name, port in one.ports.items())
    detail = one.reason or " ".join(
        part for part in (f"pid {one.pid}" if one.pid else "", ports, f"log {one.log}" if one.log else "") if part
    )
    return f"{one.name:<11}{one.state:<12}{detail}".rstrip()
