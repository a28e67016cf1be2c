"""A project of fifty pipelines with three tables each, and the way into it: a fresh process in its folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import dagster as dg
import yaml

from resources.connections import data_folder
from tests.kit import specs

PIPELINES, KINDS = 50, ("iceberg", "clickhouse", "bigquery")
INSIDE = "inside"
ROOT = Path(__file__).parents[2]


def in_project(module: str, topic: str) -> int:
    """The exit code of `python -m <module> inside`, run where `orchestration` has the fifty pipelines."""
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), topic)
        path = os.pathsep.join([folder, str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path, "BATCHMERGE_HOME": str(data_folder())}
        command = [sys.executable, "-m", module, INSIDE]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def load() -> tuple[float, dg.Definitions]:
    """Seconds from reading the files to a repository that can be shown."""
    from orchestration.definitions import defs

    began = time.monotonic()
    whole = defs()
    assert len(whole.get_repository_def().get_all_jobs()) >= PIPELINES
    return time.monotonic() - began, whole


def _write(folder: Path, topic: str) -> None:
    """Pipeline files that are copies of the demo's, with other names and tables."""
    shutil.copytree(ROOT / "orchestration", folder / "orchestration", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder / "pyproject.toml")
    document = yaml.safe_load((ROOT / "orchestration/defs/flights/defs.yaml").read_text())
    shutil.rmtree(folder / "orchestration/defs/flights")
    for number in range(PIPELINES):
        name = f"bench_{uuid.uuid4().hex[:6]}_{number}"
        tables = [{"kind": kind, "table": f"{name}.t", "mode": "upsert_delete"} for kind in KINDS]
        source = {**document["attributes"]["source"], "topics": [topic]}
        attributes = {**document["attributes"], "source": source, "tables": tables, "paused": False}
        specs.write(folder / "orchestration/defs", name, attributes)
