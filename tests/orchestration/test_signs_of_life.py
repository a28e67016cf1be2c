"""A command's run whose process nobody can see: on another machine, or in a container that is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster import EventLogEntry
from dagster._core.test_utils import create_run_for_test

from orchestration.cli.instance import dagster_instance
from orchestration.names import PROCESS_TAG, SIGNS_TAG
from orchestration.pools.pool_waits import holders
from orchestration.runs.dead_runs import end_dead_runs
from orchestration.runs.signs_of_life import signs_of_life
from tests.kit.waiting import until

STARTED = dg.DagsterRunStatus.STARTED
HOUR = 3600.0


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    with dagster_instance() as opened:
        yield opened


def elsewhere(instance: dg.DagsterInstance, signs: str = "") -> dg.DagsterRun:
    """A run of a process on another machine; it holds a pool.

    Args:
        signs: the run that gives signs of life: "its own", or another one that this one tries again.
    """
    made: dg.DagsterRun = create_run_for_test(instance, job_name="orders", status=STARTED)
    tags = {PROCESS_TAG: f"elsewhere 4711 1@0 {made.run_id}"}
    instance.add_run_tags(made.run_id, tags | {SIGNS_TAG: made.run_id if signs == "its own" else signs})
    instance.event_log_storage.initialize_concurrency_limit_to_default(f"pool/{made.run_id}")
    assert instance.event_log_storage.claim_concurrency_slot(f"pool/{made.run_id}", made.run_id, "step").is_claimed
    return made


def logged(instance: dg.DagsterInstance, run: dg.DagsterRun, ago: float) -> None:
    """The run has logged something so many seconds ago."""
    event = EventLogEntry(
        error_info=None, level=20, user_message="", run_id=run.run_id, timestamp=time.time() - ago, job_name="orders"
    )
    instance.event_log_storage.store_event(event)


def test_run_that_gives_no_sign_is_ended(instance: dg.DagsterInstance) -> None:
    dead, works = elsewhere(instance, "its own"), elsewhere(instance, "its own")
    old_version, retry = elsewhere(instance), elsewhere(instance, dead.run_id)
    for run in (dead, works, old_version, retry):
        logged(instance, run, HOUR)
    logged(instance, works, 60)
    (line,) = end_dead_runs(instance)
    assert line == (
        f"run {dead.run_id[:8]} of orders is over, its process 4711 on elsewhere has given no sign of life for half an "
        f"hour; freed pool/{dead.run_id}"
    )
    assert not holders(instance, [f"pool/{dead.run_id}"])
    under_way = {run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=[STARTED]))}
    assert under_way == {works.run_id, old_version.run_id, retry.run_id}


def test_signs_are_given_while_the_run_works(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.runs.signs_of_life._EVERY", 0.01)
    run = elsewhere(instance, "its own")
    logged(instance, run, HOUR)
    with signs_of_life(instance, run.run_id):
        until(lambda: len(instance.all_logs(run.run_id)) > 2, what="two signs")
    assert end_dead_runs(instance) == []
