"""Runs that were killed: what they held is freed by whoever comes next, where no Dagster daemon runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import psutil
import pytest
from dagster._core.test_utils import create_run_for_test

from orchestration.cli.instance import SETTINGS, dagster_instance
from orchestration.names import LAUNCHER_TAG, PIPELINE_TAG, PROCESS_TAG
from orchestration.pools.pool_waits import holders
from orchestration.runs.dead_runs import end_dead_runs
from orchestration.runs.run_process import process_tags
from orchestration.runs.stopping import stop_runs
from resources.connections import Connections
from tests.kit import specs
from tests.kit.connections_file import write_connections
from tests.kit.empty_instance import make_empty_instance
from tests.kit.flow import ROOT, Flow, rows
from tests.kit.model import expected
from tests.kit.processes import lives
from tests.kit.records import bootstrap, produce, random_changes
from tests.kit.waiting import PATIENCE, until

STATUS = dg.DagsterRunStatus


@contextmanager
def _process(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own with its output in `log`; killed at the end."""
    with log.open("wb") as output:
        started = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT)
        try:
            yield started
        finally:
            started.kill()
            started.wait()


def _call(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)


def _is_asleep(waiting: psutil.Process, log: Path) -> None:
    """It goes to sleep again and again, and takes hardly any of a processor's time meanwhile."""
    began, before, slept = time.monotonic(), waiting.cpu_times(), waiting.num_ctx_switches().voluntary
    until(lambda: waiting.num_ctx_switches().voluntary > slept + 150, log)
    now = waiting.cpu_times()
    used = now.user + now.system - before.user - before.system
    assert used / (time.monotonic() - began) < 0.4


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """DAGSTER_HOME with the shipped settings; no daemon runs on it."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    make_empty_instance(tmp_path / "dagster")
    (tmp_path / "dagster" / "dagster.yaml").write_text(SETTINGS.read_text())
    return tmp_path / "dagster"


def test_a_killed_run_holds_nobody_up_and_a_live_one_is_waited_for(
    stack: Path,
    connections: Connections,
    topic: Callable[..., str],
    silent_server: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = Flow(topic(), ["upsert"])
    records = random_changes(seed=5, count=50, keys=20, partitions=1)
    produce(bootstrap(connections), flow.topic, records)
    specs.write(tmp_path / "pipelines", flow.name, flow.spec_document)
    monkeypatch.setenv("BATCHMERGE_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(tmp_path / "connections.yaml"))
    silent = {"kind": "kafka", "bootstrap_servers": silent_server, "timeout_seconds": 300}
    command = [str(Path(sys.executable).with_name("batchmerge"))]

    first, second = tmp_path / "first.log", tmp_path / "second.log"
    with dg.DagsterInstance.from_config(str(home)) as instance:
        write_connections(stack, tmp_path, kafka=silent)
        with _process([*command, "run", flow.name], first) as holder:
            until(lambda: holders(instance, [f"landing/{flow.name}"]), first)
            run_id = instance.get_runs(limit=1)[0].run_id
            # From then on it waits for Kafka, and writes nothing to the instance's files that would stay locked.
            until(lambda: instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_START), first)
            holder.send_signal(signal.SIGSTOP)  # or it would give up Kafka, sooner or later
            write_connections(stack, tmp_path)
            refused = _call([*command, "run", flow.name, "--no-wait"])
            assert refused.returncode == 3, refused.stderr
            assert f"run {run_id[:8]} of {flow.name} (process {holder.pid}) works on landing/" in refused.stderr
            with _process([*command, "run", flow.name], second) as waiting:
                until(lambda: f"waiting: run {run_id[:8]} of {flow.name}" in second.read_text(), second)
                _is_asleep(psutil.Process(waiting.pid), second)
                assert waiting.poll() is None
                holder.send_signal(signal.SIGKILL)
                # Nobody has waited for it yet: it is a zombie, as in many a container.
                assert waiting.wait(PATIENCE) == 0, second.read_text()
            assert f"process {holder.pid} is gone" in second.read_text()
            assert f"freed landing/{flow.name}" in second.read_text()
        assert rows(connections, flow.table("upsert")) == expected(records, "upsert")
        assert instance.get_run_by_id(run_id).status == STATUS.FAILURE  # type: ignore[union-attr]

        dead = _dead_run(instance, flow.name)
        assert _claim(instance, f"landing/{flow.name}", dead)
        done = _call([*command, "replay", flow.name, "--batches", "1"])
        assert done.returncode == 0, done.stderr
        assert f"run {dead.run_id[:8]} of {flow.name} is over" in done.stderr
    assert rows(connections, flow.table("upsert")) == expected(records, "upsert")


def _dead_run(instance: dg.DagsterInstance, pipeline: str) -> dg.DagsterRun:
    tags = {PIPELINE_TAG: pipeline}
    made: dg.DagsterRun = create_run_for_test(instance, job_name=pipeline, status=STATUS.STARTED, tags=tags)
    instance.add_run_tags(made.run_id, {PROCESS_TAG: process_tags(made.run_id)[PROCESS_TAG].replace("@", "1@")})
    return made


def _claim(instance: dg.DagsterInstance, pool: str, run: dg.DagsterRun) -> bool:
    instance.event_log_storage.initialize_concurrency_limit_to_default(pool)
    return bool(instance.event_log_storage.claim_concurrency_slot(pool, run.run_id, "step").is_claimed)


def test_only_what_is_surely_dead_is_ended(home: Path) -> None:
    del home
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    with dagster_instance() as instance:

        def run(status: dg.DagsterRunStatus, **changes: str) -> dg.DagsterRun:
            made: dg.DagsterRun = create_run_for_test(instance, job_name="p", status=status)
            host, pid, start, run_id = process_tags(made.run_id)[PROCESS_TAG].split(" ")
            named = {"host": host, "pid": pid, "start": start, "run_id": run_id} | changes
            instance.add_run_tags(made.run_id, {PROCESS_TAG: " ".join(named.values())})
            assert _claim(instance, f"pool/{made.run_id}", made)
            return made

        dead = [run(status, start="1@0") for status in (STATUS.STARTED, STATUS.STARTING, STATUS.NOT_STARTED)]
        dead.append(run(STATUS.STARTED, pid=str(gone.pid)))
        cancelled, ended = run(STATUS.CANCELING, start="1@0"), run(STATUS.SUCCESS, start="1@0")
        deleted = dg.DagsterRun("p")
        assert _claim(instance, f"pool/{deleted.run_id}", deleted)
        just_now = run(STATUS.STARTED)
        instance.report_run_failed(just_now)
        others = [
            run(STATUS.STARTED),
            run(STATUS.NOT_STARTED),
            run(STATUS.STARTED, pid=str(gone.pid), host="elsewhere"),
            run(STATUS.STARTED, pid=str(gone.pid), run_id="of the run that this one tries again"),
            just_now,
        ]
        queued = create_run_for_test(instance, job_name="p", status=STATUS.STARTED)
        assert not _claim(instance, f"pool/{dead[0].run_id}", queued)

        ended_runs = end_dead_runs(instance)

        over = [*dead, cancelled, ended, deleted]
        assert sorted(line.split()[1] for line in ended_runs) == sorted(run.run_id[:8] for run in over)
        assert all(f"freed pool/{run.run_id}" in "\n".join(ended_runs) for run in over)
        now = [r.status if (r := instance.get_run_by_id(run.run_id)) else None for run in over]
        assert now == [*[STATUS.FAILURE] * 4, STATUS.CANCELED, STATUS.SUCCESS, None]
        assert not holders(instance, [f"pool/{run.run_id}" for run in over])
        assert _claim(instance, f"pool/{dead[0].run_id}", queued)
        assert all(holders(instance, [f"pool/{run.run_id}"]) for run in others)
        assert end_dead_runs(instance) == []


def test_many_who_look_at_once_report_a_dead_run_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each report would be an alert."""
    del home
    together = threading.Barrier(4)
    monkeypatch.setattr("orchestration.runs.dead_runs.end_leftovers", lambda *_: together.wait(PATIENCE) and 0)
    with dagster_instance() as instance, ThreadPoolExecutor(4) as pool:
        dead = _dead_run(instance, "p")
        lines = [line for found in pool.map(end_dead_runs, [instance] * 4) for line in found]
        failures = instance.all_logs(dead.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    assert len(lines) == len(failures) == 1


def test_a_run_that_ends_in_order_while_somebody_looks_stays_a_success(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del home
    with dagster_instance() as instance:
        run = _dead_run(instance, "p")

        def meanwhile(*_: object) -> int:
            event = dg.DagsterEvent(dg.DagsterEventType.RUN_SUCCESS.value, "p")
            instance.report_dagster_event(event, run.run_id)
            return 0

        monkeypatch.setattr("orchestration.runs.dead_runs.end_leftovers", meanwhile)
        assert end_dead_runs(instance) == []
        assert instance.get_run_by_id(run.run_id).status == STATUS.SUCCESS  # type: ignore[union-attr]


def test_a_run_is_over_whose_launcher_died_before_it_began(home: Path) -> None:
    """It has no process that could be looked for; Dagster's daemon, where one runs, would wait for it for minutes."""
    del home
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    with dagster_instance() as instance:

        def launched(
            tag: str = LAUNCHER_TAG, status: dg.DagsterRunStatus = STATUS.STARTING, **changes: str
        ) -> dg.DagsterRun:
            made: dg.DagsterRun = create_run_for_test(instance, job_name="p", status=status)
            host, pid, start, run_id = process_tags(made.run_id)[PROCESS_TAG].split(" ")
            named = {"host": host, "pid": pid, "start": start, "run_id": run_id} | changes
            instance.add_run_tags(made.run_id, {tag: " ".join(named.values())})
            return made

        dead = [launched(pid=str(gone.pid)), launched(start="1@0")]
        retried = launched(PROCESS_TAG, pid=str(gone.pid), run_id="of the run that this one tries again")
        instance.add_run_tags(retried.run_id, process_tags(retried.run_id, tag=LAUNCHER_TAG))
        begun = launched(pid=str(gone.pid))
        instance.add_run_tags(begun.run_id, process_tags(begun.run_id))
        elsewhere, copied = launched(host="elsewhere", pid="1"), launched(pid=str(gone.pid), run_id="of another")
        # In a code server of its own, which nobody but run monitoring asks, a run outlives the daemon.
        served = launched(status=STATUS.STARTED, pid=str(gone.pid))
        left = [retried, begun, elsewhere, copied, served, launched()]

        ended_runs = end_dead_runs(instance)

        assert sorted(line.split()[1] for line in ended_runs) == sorted(run.run_id[:8] for run in dead)
        assert f"process {gone.pid} is gone" in "\n".join(ended_runs)
        under_way = {run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=[STATUS.STARTING, STATUS.STARTED]))}
        assert under_way == {run.run_id for run in left}


_LOCATION = """
import os, sys, time
from pathlib import Path
import dagster as dg
from orchestration.executor import step_processes

@dg.op(pool="the/table")
def hangs():
    where = Path(os.environ["PIDS"])
    where.joinpath(str(os.getpid())).touch()
    while where.joinpath("hang").exists():
        time.sleep(0.05)

@dg.job(executor_def=step_processes(1))
def job():
    hangs()

if __name__ == "__main__":
    with dg.DagsterInstance.get() as instance:
        dg.execute_job(dg.reconstructable(job), instance=instance)
"""


def test_the_steps_of_a_killed_run_are_ended_with_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the daemon's runs: every step in a process of its own, which outlives the run's."""
    program, pids = tmp_path / "location.py", tmp_path / "pids"
    program.write_text(_LOCATION)
    pids.mkdir()
    (pids / "hang").touch()
    monkeypatch.setenv("PIDS", str(pids))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    first, second = tmp_path / "first.log", tmp_path / "second.log"

    def steps() -> list[int]:
        return [int(path.name) for path in pids.iterdir() if path.name.isdigit()]

    with dg.DagsterInstance.from_config(str(home)) as instance:
        with _process([sys.executable, str(program)], first) as killed:
            until(steps, first)
            killed.send_signal(signal.SIGKILL)
            killed.wait()
        (step,) = map(psutil.Process, steps())
        try:
            assert step.is_running()
            dead = instance.get_runs()[0]
            with _process([sys.executable, str(program)], second) as waiting:
                until(lambda: len(steps()) == 2, second)
                (pids / "hang").unlink()
                assert waiting.wait(PATIENCE) == 0, second.read_text()
            until(lambda: not lives(step), second)
            messages = [entry.message for entry in instance.all_logs(instance.get_runs(limit=1)[0].run_id)]
            assert [line for line in messages if "processes of its steps" in line and "freed the/table" in line]
            assert instance.get_run_by_id(dead.run_id).status == STATUS.FAILURE  # type: ignore[union-attr]
        finally:
            if step.is_running():
                os.kill(step.pid, signal.SIGKILL)


def test_the_run_of_a_daemon_waits_for_a_live_one_asleep(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, pids, log = tmp_path / "location.py", tmp_path / "pids", tmp_path / "log"
    program.write_text(_LOCATION)
    pids.mkdir()
    monkeypatch.setenv("PIDS", str(pids))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with dg.DagsterInstance.from_config(str(home)) as instance:
        live = create_run_for_test(instance, job_name="p", status=STATUS.STARTED)
        instance.add_run_tags(live.run_id, process_tags(live.run_id))
        assert _claim(instance, "the/table", live)
        with _process([sys.executable, str(program)], log) as waiting:

            def waits() -> bool:
                runs = [run for run in instance.get_runs() if run.run_id != live.run_id]
                line = f"waiting: run {live.run_id[:8]} of p (process {os.getpid()}) works on the/table since "
                return any(entry.message.startswith(line) for run in runs for entry in instance.all_logs(run.run_id))

            until(waits, log)
            _is_asleep(psutil.Process(waiting.pid), log)
            instance.event_log_storage.free_concurrency_slots_for_run(live.run_id)
            assert waiting.wait(PATIENCE) == 0, log.read_text()


@pytest.mark.parametrize("hangs", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_person_ends_a_run_even_one_that_hangs(
    hangs: bool, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, pids, log = tmp_path / "location.py", tmp_path / "pids", tmp_path / "log"
    program.write_text(_LOCATION)
    pids.mkdir()
    (pids / "hang").touch()
    monkeypatch.setenv("PIDS", str(pids))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with dg.DagsterInstance.from_config(str(home)) as instance:
        with _process([sys.executable, str(program)], log) as started:
            until(lambda: len(list(pids.iterdir())) == 2, log)
            (step,) = [psutil.Process(int(path.name)) for path in pids.iterdir() if path.name.isdigit()]
            if hangs:
                started.send_signal(signal.SIGSTOP)
                monkeypatch.setattr("orchestration.runs.stopping._PATIENCE", 0.0)
            (line,) = stop_runs(instance, instance.get_runs())
            assert ("was killed" in line) == hangs
            until(lambda: started.poll() is not None, log)
            until(lambda: not lives(step), log)
        assert instance.get_runs()[0].status == STATUS.CANCELED
        assert not holders(instance, ["the/table"])
