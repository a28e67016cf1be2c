"""Copies the databases of a Dagster instance without runs: to make new ones takes a second each time."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

import dagster as dg


def make_empty_instance(folder: Path) -> None:
    """Makes them in this DAGSTER_HOME; the settings of the instance come from whoever opens it."""
    shutil.copytree(_made_once().name, folder, dirs_exist_ok=True)


@cache
def _made_once() -> tempfile.TemporaryDirectory[str]:
    made = tempfile.TemporaryDirectory()
    with dg.instance_for_test(temp_dir=made.name) as instance:
        instance.get_runs()
        instance.event_log_storage.get_concurrency_keys()
        instance.all_instigator_state()
    Path(made.name, "dagster.yaml").unlink()
    return made
