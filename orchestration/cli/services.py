"""`batchmerge up | down`: the local services of the data folder."""

from __future__ import annotations

from typing import get_args

import click

from orchestration.cli import output
from resources.connections import data_folder
from resources.local import stack
from resources.local.service import Lake


@click.command()
@click.option(
    "--only", metavar="NAMES", help="Services by name, with commas: kafka,spark. Services that they need start too."
)
@click.option("--lake", type=click.Choice(get_args(Lake)), help="Where the lake's files are; fixed at the first start.")
def up(only: str | None, lake: Lake | None) -> None:
    """Start the local services that are not running yet, and wait until they answer.

    The services listen only on 127.0.0.1, and run until `batchmerge down`. Their ports are chosen at the first start.
    """
    names = [name.strip() for name in only.split(",") if name.strip()] if only is not None else None
    site = stack.up(data_folder(), names, output.say, lake)
    output.result([service.model_dump() for service in stack.status(data_folder())])
    output.say(f"connections are in {site.home / 'connections.yaml'}")


@click.command()
def down() -> None:
    """Stop the local services, and `batchmerge ui`. Their data and their ports stay for the next `up`."""
    stack.down(data_folder(), output.say)
    output.result([service.model_dump() for service in stack.status(data_folder())])
