"""What a script has started in the background ends when it is asked to, although INT is ignored there."""

from __future__ import annotations

import re
import signal
import subprocess
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import dagster as dg
import pytest
import yaml

from orchestration.cli.instance import dagster_instance
from orchestration.pools.pool_waits import holders
from orchestration.runs.run_process import process_tags
from resources.local.ports import free_port
from tests.kit import specs
from tests.kit.command import BATCHMERGE, in_background
from tests.kit.flow import Flow
from tests.kit.processes import lives
from tests.kit.waiting import until

FLOW = Flow("t", ["append"], overrides={"retry": {"max_retries": 9, "delay_seconds": 3600}})
RUN, REPLAY, VERIFY = "run {}", "replay {} --batches 1", "verify {}"
ENDS = {dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.STEP_UP_FOR_RETRY}
STARTED = dg.DagsterRunStatus.STARTED


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of its own, with one pipeline."""
    monkeypatch.delenv("BATCHMERGE_CONNECTIONS", raising=False)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BATCHMERGE_PIPELINES", str(tmp_path / "pipelines"))
    (tmp_path / "home").mkdir()
    specs.write(tmp_path / "pipelines", FLOW.name, FLOW.spec_document)
    return tmp_path / "home"


@pytest.mark.parametrize("way", ["INT", pytest.param("down", marks=pytest.mark.slow)])
def test_the_page_ends_with_all_that_it_has_started(way: str, tmp_path: Path) -> None:
    port, log = free_port(()), tmp_path / "log"

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5).close()
        except (urllib.error.URLError, OSError):
            return False
        return True

    with in_background(f"ui --port {port}", log) as page:
        until(answers, log)
        family = [page, *page.children(recursive=True)]
        assert len(family) > 2
        if way == "INT":
            page.send_signal(signal.SIGINT)
        else:
            done = subprocess.run([BATCHMERGE, "down"], check=True, capture_output=True, text=True)
            assert f"ui {port}: stopped" in done.stdout
        until(lambda: not any(lives(one) for one in family), log)
    assert "Dagster services shut down" in log.read_text()
    assert not re.findall(r"\w+Warning: .*", log.read_text())


@pytest.mark.parametrize(
    ("command", "asked", "moment", "patience"),
    [
        (RUN, signal.SIGINT, "STEP_START", 300),
        (RUN, signal.SIGTERM, "STEP_UP_FOR_RETRY", 1),
        (RUN, signal.SIGINT, "waiting", 1),
        (REPLAY, signal.SIGTERM, "STEP_START", 300),
        # As a run does, by the same code.
        pytest.param(REPLAY, signal.SIGINT, "waiting", 1, marks=pytest.mark.slow),
        pytest.param(VERIFY, signal.SIGINT, "STEP_START", 300, marks=pytest.mark.slow),
    ],
)
def test_a_run_ends_at_once_and_frees_what_it_held(
    command: str, asked: signal.Signals, moment: str, patience: float, home: Path, tmp_path: Path, silent_server: str
) -> None:
    """At work, in the pause before another try, and while another run has its table."""
    log, pool, other = tmp_path / "log", f"landing/{FLOW.name}", str(uuid.uuid4())
    job = dg.RunsFilter(job_name=FLOW.name if command == RUN else f"{FLOW.name}_{command.split(maxsplit=1)[0]}")
    lake = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db"}
    silent_lake = {"type": "rest", "uri": f"http://{silent_server}"}
    connections = {
        "kafka": {"kind": "kafka", "bootstrap_servers": silent_server, "timeout_seconds": patience},
        "lake": {"kind": "iceberg", "warehouse": str(tmp_path), **(lake if command == RUN else silent_lake)},
        "spark": {"kind": "spark", "master": "local[1]"},
    }
    (home / "connections.yaml").write_text(yaml.safe_dump({"connections": connections}))
    (tmp_path / "lake.db").touch()
    with dagster_instance() as instance:
        if moment == "waiting":
            instance.add_run(dg.DagsterRun("other", other, status=STARTED, tags=process_tags(other)))
            instance.event_log_storage.initialize_concurrency_limit_to_default(pool)
            instance.event_log_storage.claim_concurrency_slot(pool, other, "landing")

        def has_come() -> bool:
            runs = instance.get_runs(job)
            kinds = [
                e.dagster_event.event_type_value
                for run in runs
                for e in instance.all_logs(run.run_id)
                if e.dagster_event
            ]
            return moment in kinds or f"{moment}: run {other[:8]}" in log.read_text()

        with in_background(command.format(FLOW.name), log) as run:
            until(lambda: has_come() or not lives(run), log)
            assert lives(run), log.read_text()
            run.send_signal(asked)
            until(lambda: not lives(run), log)
        (ended,) = instance.get_runs(job)
        assert log.read_text().strip().endswith("cancelled")
        assert ended.status == dg.DagsterRunStatus.CANCELED
        retries = instance.all_logs(ended.run_id, of_type=dg.DagsterEventType.STEP_UP_FOR_RETRY)
        assert len(retries) == (moment == "STEP_UP_FOR_RETRY")
        assert not holders(instance, [pool], besides=other)
        # Each step that began has reported its end: nobody waited for one in vain.
        began, failed = (
            {entry.step_key for entry in instance.all_logs(ended.run_id, of_type=kind)}
            for kind in ({dg.DagsterEventType.STEP_START}, ENDS)
        )
        assert began == failed
