"""A Spark server that runs on after an upgrade, and workers of another version, are named before anything is done."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resources.connections import Connections, SparkConnection
from resources.errors import ConfigurationError
from tests.kit.engine import Engine
from tests.kit.flow import ROOT, Flow
from tests.kit.records import put

_OPEN = """
import sys
from resources.connections import SparkConnection
from resources.errors import ConfigurationError
from resources.spark import open_session
try:
    open_session(SparkConnection(kind="spark", remote=sys.argv[1]), "upgraded/landing", {})
    print("opened")
except ConfigurationError as problem:
    print(problem)
"""


def test_a_server_of_other_code_is_not_worked_with(connections: Connections, tmp_path: Path) -> None:
    """In a checkout, whose version number stays: one changed file is enough."""
    for part in ("jobs", "resources", "sql"):
        shutil.copytree(ROOT / part, tmp_path / part)
    remote = connections.get("spark", SparkConnection).remote
    assert remote

    def opened() -> str:
        command = [sys.executable, "-c", _OPEN, remote]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        return done.stdout

    assert opened() == "opened\n", "where the code is does not matter"
    with (tmp_path / "jobs/landing/task.py").open("a") as file:
        file.write("_MORE = 1\n")
    assert opened() == (
        f"{remote.removeprefix('sc://')}: this Spark server was started by other code of Batchmerge than that of this "
        "process. Fix: have the same version everywhere, then restart the Spark Connect server (the local one by "
        "`batchmerge down`, then `batchmerge up`), code servers and Dagster's daemon\n"
    )


def test_workers_of_other_code_are_given_nothing_to_do(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, whose server says nothing of the code of its workers."""
    flow = Flow(topic(), ["append"])
    engine = Engine(flow, connections, spark)
    engine.produce(put(1))
    with monkeypatch.context() as patch:
        patch.setattr("jobs.spark.sent_task.OWN_CODE", "of another version")
        with pytest.raises(ConfigurationError, match=rf"{ROOT} on .*: Spark's Python workers have loaded other code"):
            engine.advance()
    assert engine.pipeline.intermediate.committed() is None
    engine.advance()
    assert len(engine.read("append")) == 1
