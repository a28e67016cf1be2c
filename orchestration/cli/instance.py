"""The Dagster instance of the data folder: its runs, assets and schedules."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import click
import dagster as dg

from orchestration.compute_logs import leave_in_terminal
from orchestration.databases import keep_databases_open
from resources.connections import data_folder
from resources.local.locks import exclusive

SETTINGS = Path(__file__).parents[1] / "instance" / "dagster.yaml"


def dagster_home() -> Path:
    """`DAGSTER_HOME` if you have one, else `<data folder>/dagster`, made at its first use."""
    named = os.environ.get("DAGSTER_HOME")
    home = Path(named).absolute() if named else data_folder() / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "dagster.yaml").exists():
        shutil.copyfile(SETTINGS, home / "dagster.yaml")
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def dagster_instance() -> dg.DagsterInstance:
    leave_in_terminal()
    keep_databases_open()
    # Two processes that create a new instance's tables at once would disturb each other.
    with exclusive(dagster_home() / "lock", partial(click.echo, err=True)):
        return dg.DagsterInstance.get()
