"""A Spark cluster in processes of this machine: a standalone master, workers of one core, and a Connect server, all
from PySpark's own jars.

Workers have a file system of their own where one folder is named that they must not share: there it is empty.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from resources.connections import Connections, SparkConnection
from resources.local.jars import classpath, fetch, pyspark_folder
from resources.local.java import find_java
from resources.local.lake import STORES
from resources.local.ports import accepts, free_port
from resources.local.processes import inherited
from resources.local.spark_server import LIBRARIES, PROGRAM, SHARED_SESSIONS, says_version
from tests.kit.network import with_connection
from tests.kit.processes import started_by, stop
from tests.kit.waiting import until

HOST = "127.0.0.1"
_PACKAGES = (
    *("java." + p for p in ("lang", "lang.invoke", "io", "net", "nio", "util")),
    *("java.util." + p for p in ("concurrent", "concurrent.atomic")),
    *("sun.nio.ch", "sun.util.calendar", "jdk.internal.ref"),
)


@dataclass(frozen=True, order=True)
class Task:
    """One that has ended: when, in seconds since 1970, and where."""

    begin: float
    end: float
    executor: str


@dataclass
class SparkCluster:
    """
    Attributes:
        folder: logs, and of each process a folder of its own.
        hidden: a folder that workers find empty; None: they see all.
        workers: that have been started, each with one core.
    """

    folder: Path
    hidden: Path | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    master: str = ""
    remote: str = ""
    _leader: subprocess.Popen[bytes] | None = None
    _connect: subprocess.Popen[bytes] | None = None
    _closing: ExitStack = field(default_factory=ExitStack)

    def connections(self, known: Connections) -> Connections:
        """These connections, with this cluster as Spark."""
        spark = known.get("spark", SparkConnection).model_copy(update={"remote": self.remote})
        return with_connection(known, "spark", spark)

    def start_master(self) -> None:
        """At the address of the one before, if there was one."""
        port = int(self.master.rpartition(":")[2]) if self.master else free_port(())
        self.master = f"spark://{HOST}:{port}"
        argv = ["--host", HOST, "--port", str(port), "--webui-port", "0"]
        self._leader = leader = self._start("master", "org.apache.spark.deploy.master.Master", *argv)
        self._wait("master", leader, lambda _: accepts(port))

    def start_worker(self) -> None:
        name = f"worker-{len(self.workers) + 1}"
        argv = ["--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g", self.master]
        worker = self._start(name, "org.apache.spark.deploy.worker.Worker", *argv, apart=True)
        self._wait(name, worker, lambda text: "Successfully registered with master" in text)
        self.workers.append(worker)

    def start_connect(self, program: Path = PROGRAM) -> None:
        """The driver, which takes all workers; executors get the libraries from it. Its log of events is kept."""
        port = free_port(())
        self._events.mkdir(exist_ok=True)
        settings = {
            "spark.master": self.master,
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.jars": ",".join(str(jar) for folder in _libraries() for jar in sorted(folder.glob("*.jar"))),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(port),
            "spark.sql.shuffle.partitions": "4",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{self._events}",
            **SHARED_SESSIONS,
        }
        options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        self._connect = self._start("connect", "org.apache.spark.deploy.SparkSubmit", *options, str(program))
        self._wait("connect", self._connect, lambda _: accepts(port) and says_version(f"{HOST}:{port}"))
        self.remote = f"sc://{HOST}:{port}"

    def kill_connect(self) -> None:
        assert self._connect
        self._connect.kill()
        self._connect.wait()

    def await_end_of_connect(self) -> None:
        """Waits until it ends by itself."""
        until(lambda: self._connect and self._connect.poll() is not None, self.folder / "connect.log", "end")

    def kill_master(self) -> None:
        assert self._leader
        self._leader.kill()
        self._leader.wait()

    def kill_worker(self) -> None:
        """Kills the worker that was started last, with all that runs in it."""
        last = self.workers.pop()
        started = psutil.Process(last.pid).children(recursive=True)
        last.kill()
        last.wait()
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def executor(self, worker: int) -> psutil.Process:
        """The Java process in which this worker runs tasks."""

        server, log = psutil.Process(self.workers[worker].pid), self.folder / f"worker-{worker + 1}.log"
        return until(lambda: started_by(server, "CoarseGrainedExecutorBackend"), log, "executor")[0]

    def tasks(self) -> list[Task]:
        """By Spark's log of events, in order; those of a job are known when it ends."""
        infos = (event["Task Info"] for event in self._logged("SparkListenerTaskEnd"))
        return sorted(Task(t["Launch Time"] / 1000, t["Finish Time"] / 1000, t["Executor ID"]) for t in infos)

    def stages(self) -> int:
        """How many stages have begun."""
        return sum(1 for _ in self._logged("SparkListenerStageSubmitted"))

    def log_of_events(self) -> str:
        """All of Spark's log of events, of every driver."""
        return "".join(log.read_text() for log in self._events.iterdir())

    def _logged(self, kind: str) -> Iterator[dict[str, Any]]:
        # The last line may be half written.
        for line in self.log_of_events().splitlines(keepends=True):
            if line.endswith("\n") and f'"Event":"{kind}"' in line:
                yield json.loads(line)

    def stop(self) -> None:
        self._closing.close()

    @property
    def _events(self) -> Path:
        return self.folder / "events"

    def _start(self, name: str, main: str, *arguments: str, apart: bool = False) -> subprocess.Popen[bytes]:
        java, own = find_java(print), self.folder / name
        (own / "tmp").mkdir(parents=True, exist_ok=True)
        environment = {
            **inherited(os.environ),
            "SPARK_HOME": str(pyspark_folder()),
            "JAVA_HOME": str(java.executable.resolve().parents[1]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST,
            "TMPDIR": str(own / "tmp"),
            # What the launcher scripts would set; workers start executors by it.
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_WORKER_DIR": str(own),
        }
        argv = [str(java.executable), *java.options, "-Xmx512m", f"-Djava.io.tmpdir={own / 'tmp'}"]
        argv += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _PACKAGES]
        argv += ["-cp", classpath(pyspark_folder() / "jars", *_libraries()), main, *arguments]
        if apart and self.hidden:
            shown = f"mount -t tmpfs none {shlex.quote(str(self.hidden))} && exec {shlex.join(argv)}"
            argv = ["unshare", "--map-root-user", "--mount", "sh", "-c", shown]
        with (self.folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(argv, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=own)
        self._closing.callback(stop, process)
        return process

    def _wait(self, name: str, process: subprocess.Popen[bytes], done: Callable[[str], bool]) -> None:
        log = self.folder / f"{name}.log"

        def is_done() -> bool:
            assert process.poll() is None, log.read_text()[-3000:]
            return done(log.read_text())

        until(is_done, log)


def _libraries() -> list[Path]:
    """The libraries for Spark, and for S3."""
    bundles = [LIBRARIES, *(store.libraries for store in STORES if store.name == "s3")]
    return [fetch(bundle, find_java(print), print) for bundle in bundles]


@contextmanager
def spark_cluster(folder: Path, workers: int, hidden: Path | None = None) -> Iterator[SparkCluster]:
    """A cluster that is ready; it stops when the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = SparkCluster(folder, hidden)
    try:
        cluster.start_master()
        for _ in range(workers):
            cluster.start_worker()
        cluster.start_connect()
        yield cluster
    finally:
        cluster.stop()
