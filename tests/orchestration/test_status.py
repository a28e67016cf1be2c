"""`batchmerge status` in plain words: what starts a pipeline, what keeps it from it, what its tables lack."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test
from dagster._daemon.types import DaemonHeartbeat

from orchestration.cli.dagster_state import DagsterState, dagster_state
from orchestration.cli.pipelines import PipelineStatus, Status, TableStatus, _starts
from orchestration.cli.status import _pipelines
from orchestration.names import PIPELINE_TAG
from tests.kit.flow import Flow


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    return tmp_path / "dagster"


def test_nothing_is_known_where_dagster_was_never_used(home: Path) -> None:
    del home
    assert dagster_state({"p": Flow("t", ["append"]).spec}) == DagsterState()


@pytest.mark.parametrize(("silent_for", "runs"), [(5, True), (600, False)])
def test_a_daemon_runs_as_long_as_it_says_so(home: Path, silent_for: int, runs: bool) -> None:
    home.mkdir()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        beat = DaemonHeartbeat(time.time() - silent_for, "SCHEDULER", str(uuid.uuid4()), [])
        instance.add_daemon_heartbeat(beat)
        run = create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.STARTED, tags={PIPELINE_TAG: "p"})
    spec = Flow("t", ["append"]).spec
    found = dagster_state({"p": spec, "q": spec})
    assert (found.daemon, found.errors) == (runs, {})
    assert found.runs == {"p": [f"run {run.run_id[:8]} is started"], "q": []}


def test_what_starts_a_pipeline() -> None:
    spec = Flow("t", ["append"], overrides={"cron": "0 5 * * *", "trigger": {"records": 5}}).spec
    assert _starts("p", spec, DagsterState()) == "its schedule (0 5 * * *) and its trigger start runs"
    stopped = DagsterState(stopped=frozenset({"p_lag"}))
    assert _starts("p", spec, stopped) == "its schedule (0 5 * * *) starts runs; its trigger is stopped in Dagster"


def test_a_paused_pipeline_and_its_dead_letters() -> None:
    tables = [
        TableStatus(
            name="landing lake.a_name_of_more_than_thirty_characters_tmp",
            batch=3,
            lag=0,
            seconds_behind=0,
            dead_letters=1200,
        ),
        TableStatus(name="iceberg a.u", batch=2, lag=4, seconds_behind=400, paused="paused by anna since now"),
        TableStatus(name="iceberg a.t", batch=2, lag=None, vtts=datetime(2026, 5, 1, tzinfo=UTC), dead_letters=0),
        TableStatus(name="clickhouse a.t", problem="no answer"),
        TableStatus(name="clickhouse a.u", batch=2, lag=0, refused=7, stale_keys=5),
    ]
    paused = PipelineStatus(name="p", starts="nothing starts by itself: p is paused", tables=tables, last_error="why")
    lines = _pipelines(Status(daemon=True, pipelines=[paused]))
    assert lines[0] == "Dagster's daemon runs: schedules and sensors start runs."
    assert lines[1:3] == ["pipeline p: nothing starts by itself: p is paused", "  last run failed: why"]
    assert [line.split(maxsplit=2)[2] for line in lines[3:8]] == [
        "batch 3, caught up, 1,200 dead letters",
        "paused by anna since now, batch 2, 4 records and 7 min behind",
        "batch 2, lag unknown: Kafka does not answer, complete through 2026-05-01 00:00:00 UTC",
        "no answer",
        "batch 2, caught up, 7 rows refused, 5 stale keys",
    ]
    assert any("VTTS" in line for line in lines)
    assert _pipelines(Status()) == []
