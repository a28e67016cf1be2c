"""A pipeline on a Spark cluster: a standalone master, two workers, and a Connect server, all from PySpark's own jars.

In a target of its own (`make production`), because six JVMs at once are too many for a small build machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import dagster as dg
import pytest

from resources.connections import Connections, SparkConnection, load_connections
from resources.local.jars import classpath, fetch, pyspark_folder
from resources.local.java import find_java
from resources.local.ports import accepts, free_port
from resources.local.spark_server import LIBRARIES, PROGRAM, SHARED_SESSIONS
from tests.kit.flow import Flow, rows
from tests.kit.model import expected
from tests.kit.processes import stop
from tests.kit.records import bootstrap, produce, random_changes
from tests.orchestration.launching import advance

pytestmark = pytest.mark.production
HOST = "127.0.0.1"
_PATIENCE = 120


class _Cluster:
    """Processes of Spark, stopped when the stack of contexts closes."""

    def __init__(self, folder: Path, closing: ExitStack) -> None:
        self._folder, self._closing = folder, closing
        self._java = find_java(print)
        self._jars = fetch(LIBRARIES, self._java, print)

    def start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "SPARK_HOME": str(pyspark_folder()),
            "JAVA_HOME": str(self._java.executable.resolve().parents[1]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST,
            # What the launcher scripts would set; workers start executors by it.
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_WORKER_DIR": str(self._folder / name),
        }
        opened = ["java.lang", "java.lang.invoke", "java.io", "java.net", "java.nio", "java.util", "sun.nio.ch"]
        opened += ["java.util.concurrent", "java.util.concurrent.atomic", "sun.util.calendar", "jdk.internal.ref"]
        argv = [
            str(self._java.executable),
            *self._java.options,
            "-Xmx512m",
            *(f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in opened),
        ]
        argv += ["-cp", classpath(pyspark_folder() / "jars", self._jars), main, *arguments]
        with (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(argv, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=self._folder)
        self._closing.callback(stop, process)
        return process

    def submitted(self, settings: dict[str, str]) -> subprocess.Popen[bytes]:
        """A Spark Connect server on the cluster; executors get the libraries from it."""
        jars = ",".join(str(jar) for jar in sorted(self._jars.glob("*.jar")))
        settings = {**settings, **SHARED_SESSIONS, "spark.jars": jars}
        options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        return self.start("connect", "org.apache.spark.deploy.SparkSubmit", *options, str(PROGRAM))

    def wait(self, name: str, process: subprocess.Popen[bytes], done: Callable[[str], bool]) -> None:
        until = time.monotonic() + _PATIENCE
        while not done(text := (self._folder / f"{name}.log").read_text()):
            assert process.poll() is None, text[-3000:]
            assert time.monotonic() < until, text[-3000:]
            time.sleep(0.2)


@pytest.fixture
def cluster(stack: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address of the Connect server, and the folder of logs and workers."""
    del stack
    with ExitStack() as closing:
        made = _Cluster(tmp_path, closing)
        port, connect = free_port(()), free_port(())
        master = f"spark://{HOST}:{port}"
        argv = ["--host", HOST, "--port", str(port), "--webui-port", "0"]
        leader = made.start("master", "org.apache.spark.deploy.master.Master", *argv)
        made.wait("master", leader, lambda _: accepts(port))
        for number in (1, 2):
            argv = ["--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g", master]
            worker = made.start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *argv)
            made.wait(f"worker-{number}", worker, lambda text: "Successfully registered with master" in text)
        settings = {
            "spark.master": master,
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(connect),
            "spark.sql.shuffle.partitions": "4",
        }
        process = made.submitted(settings)
        made.wait("connect", process, lambda _: accepts(connect))
        yield f"sc://{HOST}:{connect}", tmp_path


def test_a_pipeline_runs_on_two_workers(
    cluster: tuple[str, Path],
    connections: Connections,
    topic: Callable[..., str],
    instance: dg.DagsterInstance,
    stack: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remote, folder = cluster
    text = (stack / "connections.yaml").read_text()
    local = connections.get("spark", SparkConnection).remote
    assert local
    (tmp_path / "connections.yaml").write_text(text.replace(local, remote))
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(tmp_path / "connections.yaml"))
    assert load_connections().get("spark", SparkConnection).remote == remote
    flow = Flow(topic(partitions=4), ["upsert_delete"], max_records=600)
    records = random_changes(seed=7, count=1000, keys=100, partitions=4)
    produce(bootstrap(connections), flow.topic, records)

    result = advance(instance, flow, until_caught_up=True)

    assert result.success, [step.problem for step in result.steps]
    assert rows(connections, flow.table("upsert_delete")) == expected(records, "upsert_delete")
    # Both workers have had an executor at work.
    for number in (1, 2):
        assert "Launched" in (folder / f"worker-{number}.log").read_text() or list(
            (folder / f"worker-{number}").glob("app-*/*/stderr")
        )
