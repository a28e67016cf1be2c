"""`batchmerge ui`: Dagster's web page and daemon on this machine, until Ctrl-C, TERM or `batchmerge down`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from jobs.connections_file import CONNECTIONS
from orchestration.cli import ends_when_asked, output
from orchestration.cli.instance import dagster_home, dagster_instance
from orchestration.files import FOLDER, VARIABLE, require_pipelines
from resources.connections import data_folder
from resources.local import processes
from resources.local.ports import is_free
from resources.local.stack_state import add_ui, uis
from resources.project import project_folder


@click.command()
@click.option("--port", default=3000, show_default=True, type=click.IntRange(1, 65535), help="On 127.0.0.1.")
def ui(port: int) -> None:
    """Run Dagster for the pipelines: its web page, and the daemon that starts schedules, sensors and backfills.

    Runs until Ctrl-C or `batchmerge down`, once per data folder. Dagster's state is in <data folder>/dagster, or in
    DAGSTER_HOME if that is set.
    """
    for other, page in uis(data_folder()).items():
        if processes.is_alive(page):
            already = f"Dagster runs on this data folder already, at http://127.0.0.1:{other}"
            raise click.UsageError(f"{already}: open that, or end it")
    if not is_free(port):
        raise click.UsageError(f"port {port} is in use: name another with --port")
    require_pipelines(FOLDER)
    home = dagster_home()
    with dagster_instance():
        pass  # creates a new instance here, before three processes do it at once
    address = f"http://127.0.0.1:{port}"
    output.say(f"Dagster is starting at {address} for {FOLDER} (state in {home}); Ctrl-C stops it")
    output.result({"address": address, "state": str(home)})
    # Without Dagster's hint to use `dg dev`, which is a tool of a project's developers.
    quiet = ["-W", "ignore:Function `dev_command` is superseded"]
    command = [sys.executable, *quiet, "-m", "dagster", "dev", "--host", "127.0.0.1", "--port", str(port)]
    where = ["--module-name", "batchmerge.orchestration.definitions"]
    if (project := project_folder()) and (workspace := project / "workspace.yaml").exists():
        where = ["--workspace", str(workspace)]
    # The code server and the daemon's runs have other working directories: make the paths absolute.
    os.environ["BATCHMERGE_HOME"] = str(data_folder())
    for variable in (CONNECTIONS, VARIABLE):
        if named := os.environ.get(variable):
            os.environ[variable] = str(Path(named).absolute())
    ends_when_asked(signal.SIG_DFL)
    add_ui(data_folder(), port, processes.take_mark())
    os.execv(sys.executable, [*command, *where])  # this process becomes Dagster, so that signals reach it
