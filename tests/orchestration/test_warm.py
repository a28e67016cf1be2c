"""Runs that are forked from a warm process: a real daemon, its code server, and what becomes of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg
import psutil
import pytest
from dagster._core.storage.tags import GRPC_INFO_TAG

from orchestration.cli.instance import SETTINGS
from orchestration.names import LAUNCHER_TAG
from orchestration.runs.run_process import pid_of, process_state
from resources.local.ports import free_port
from tests.kit.dagster_dev import ask, started
from tests.kit.processes import command_of, lives, started_by
from tests.kit.waiting import until

T = TypeVar("T")
STATUS = dg.DagsterRunStatus

# Real engines: each works after the fork.
_LOCATION = """
import os, time
from pathlib import Path
import dagster as dg
from orchestration.executor import step_processes

WHERE = Path(os.environ["PIDS"])

def calls_over_grpc():  # as Spark Connect's client does
    import grpc
    from concurrent.futures import ThreadPoolExecutor
    echo = grpc.unary_unary_rpc_method_handler(lambda asked, _: asked)
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test", {"Echo": echo})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert channel.unary_unary("/test/Echo")(b"hello", timeout=60, wait_for_ready=True) == b"hello"
    server.stop(None)

@dg.op
def engines():
    import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
    from confluent_kafka.admin import AdminClient
    pq.write_table(pa.table({"a": range(100_000)}), WHERE / "table.parquet")
    assert pc.sum(pq.read_table(WHERE / "table.parquet")["a"]).as_py() == 4_999_950_000
    AdminClient({"bootstrap.servers": "127.0.0.1:1"}).poll(0.1)
    calls_over_grpc()
    print("printed by a step")

@dg.op(pool="the/table")
def hangs():
    WHERE.joinpath(str(os.getpid())).touch()
    while WHERE.joinpath("hang").exists():
        time.sleep(0.05)

@dg.job(executor_def=step_processes(2))
def job():
    engines()
    hangs()

@dg.definitions
def defs():
    with open(os.environ["LOADS"], "a") as loads:
        loads.write(f"{os.getpid()}\\n")
    return dg.Definitions(jobs=[job])
"""
_LAUNCH = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_RELOAD = 'mutation { reloadRepositoryLocation(repositoryLocationName: "location") { __typename } }'
_TERMINATE = "mutation($r: String!) { terminateRun(runId: $r) { __typename } }"


class _Dagster:
    """A running page and daemon, with what a person does there."""

    def __init__(self, address: str, group: int, instance: dg.DagsterInstance, pids: Path, log: Path) -> None:
        self.address, self.group, self.instance, self.pids, self.log = address, group, instance, pids, log

    def until(self, wanted: Callable[[], T]) -> T:
        return until(wanted, self.log)

    def launch(self) -> str:
        selector = {"repositoryLocationName": "location", "repositoryName": "__repository__", "jobName": "job"}
        found: dict[str, Any] = ask(self.address, _LAUNCH, {"p": {"selector": selector, "mode": "default"}})
        return str(found["launchRun"]["run"]["runId"])

    def run(self, run_id: str) -> dg.DagsterRun:
        found = self.instance.get_run_by_id(run_id)
        assert found
        return found

    def is_(self, run_id: str, status: dg.DagsterRunStatus) -> Callable[[], bool]:
        return lambda: self.run(run_id).status == status

    def forked(self) -> str:
        """A run that was forked, and has succeeded; those before it were not, because nothing was warm yet."""
        while True:
            run_id = self.launch()
            self.until(lambda: self.run(run_id).is_finished)  # noqa: B023  called before the next turn
            assert self.run(run_id).status == STATUS.SUCCESS, self.log.read_text()[-5000:]
            if GRPC_INFO_TAG not in self.run(run_id).tags:
                return run_id

    def hanging(self) -> tuple[str, psutil.Process]:
        """A run whose second step hangs, and that step's process."""
        for path in self.pids.iterdir():
            path.unlink()
        (self.pids / "hang").touch()
        run_id = self.launch()
        step = self.until(lambda: [int(path.name) for path in self.pids.iterdir() if path.name.isdigit()])
        return run_id, psutil.Process(step[0])


@pytest.fixture
def dagster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Dagster]:
    (tmp_path / "location.py").write_text(_LOCATION)
    home, pids, log = tmp_path / "dagster", tmp_path / "pids", tmp_path / "log"
    for folder in (home, pids):
        folder.mkdir()
    (home / "dagster.yaml").write_text(SETTINGS.read_text())
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv("PIDS", str(pids))
    monkeypatch.setenv("LOADS", str(tmp_path / "loads"))
    command = [sys.executable, "-m", "dagster", "dev", "-m", "location", "-d", str(tmp_path), "--host", "127.0.0.1"]
    with (
        dg.DagsterInstance.from_config(str(home)) as instance,
        started(command, free_port(()), {}, log) as (address, process),
    ):
        yield _Dagster(address, process.pid, instance, pids, log)


def _printed(instance: dg.DagsterInstance, run_id: str) -> bytes:
    """What a step of the run has printed, as Dagster's page shows it."""
    (captured,) = [
        entry.dagster_event.logs_captured_data
        for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.LOGS_CAPTURED)
        if entry.dagster_event and "engines" in (entry.dagster_event.logs_captured_data.step_keys or [])
    ]
    found = instance.compute_log_manager.get_log_data([run_id, "compute_logs", captured.file_key])
    return found.stdout or b""


def _step_pids(instance: dg.DagsterInstance, run_id: str) -> set[int]:
    begun = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_WORKER_STARTED)
    return {int(str(one.dagster_event.engine_event_data.metadata["pid"].value)) for one in begun if one.dagster_event}


def test_a_forked_run_works_is_cancelled_dies_is_renewed_and_ends_with_all(dagster: _Dagster, tmp_path: Path) -> None:
    forked = dagster.forked()
    assert b"printed by a step" in _printed(dagster.instance, forked)
    # Command lines are for everybody to see, and the instance's settings may hold the password of its database.
    # The run that was forked has the same one, and may not have ended yet.
    warm = started_by(psutil.Process(dagster.group), "warm.server")
    assert warm
    assert not [one for one in warm if os.environ["DAGSTER_HOME"] in " ".join(command_of(one))]
    began = {pid_of(dagster.run(forked)), *_step_pids(dagster.instance, forked)}
    assert len(began) == 3
    assert not began & {int(pid) for pid in (tmp_path / "loads").read_text().split()}, "definitions were loaded again"
    assert all(run.tags[LAUNCHER_TAG].endswith(run.run_id) for run in dagster.instance.get_runs())

    # Cancelled from the page, which is another process than the one that has launched it.
    cancelled, step = dagster.hanging()
    ask(dagster.address, _TERMINATE, {"r": cancelled})
    dagster.until(dagster.is_(cancelled, STATUS.CANCELED))
    dagster.until(lambda: not lives(step))

    # Killed: its steps end with it, run monitoring reports it to Dagster, and the pool is free for the next run.
    killed, step = dagster.hanging()
    pid = pid_of(dagster.run(killed))
    assert pid
    os.kill(pid, signal.SIGKILL)
    dagster.until(lambda: not lives(step))
    dagster.until(lambda: dagster.run(killed).is_finished)
    assert process_state(dagster.run(killed)) == "ended"
    (dagster.pids / "hang").unlink()
    for again in dagster.instance.get_runs(dg.RunsFilter(statuses=[STATUS.QUEUED, STATUS.STARTED])):
        dagster.until(lambda: dagster.run(again.run_id).is_finished)  # noqa: B023  Dagster's own second try

    # A reloaded location has other definitions, and so another warm process.
    (tmp_path / "location.py").write_text(_LOCATION.replace("printed by a step", "printed after the reload"))
    ask(dagster.address, _RELOAD, {})
    # The daemon, another process, learns of it a moment later than the page.
    dagster.until(lambda: b"printed after the reload" in _printed(dagster.instance, dagster.forked()))

    # They end with everything else.
    run_id, step = dagster.hanging()
    pid = pid_of(dagster.run(run_id))
    assert pid
    process = psutil.Process(pid)
    os.killpg(dagster.group, signal.SIGKILL)
    dagster.until(lambda: not lives(process) and not lives(step))
