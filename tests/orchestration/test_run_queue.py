"""Which runs the daemon takes from the queue, with the shipped settings. Without services."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from orchestration.cli.instance import SETTINGS
from orchestration.components import KafkaPipeline
from orchestration.launcher import WatchedRunLauncher
from orchestration.names import CONTINUOUS_TAG, WORK_ASIDE, WORK_BEGUN, WORK_TAG
from orchestration.runs import run_queue
from orchestration.runs.run_queue import counting_while_young
from tests.kit.empty_instance import make_empty_instance
from tests.kit.flow import Flow
from tests.kit.waiting import until

FLOW = Flow("t", ["append"], name="p", overrides={"interval": "1s"})
CONTINUOUS = {CONTINUOUS_TAG: "p"}
BEGUN = {WORK_TAG: WORK_BEGUN}
ASIDE = {WORK_TAG: WORK_ASIDE}
EIGHT = 8
ORIGIN = RemoteJobOrigin(RemoteRepositoryOrigin(GrpcServerCodeLocationOrigin("localhost", 1), "defs"), "x")


@pytest.fixture
def shipped(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    make_empty_instance(tmp_path)
    shutil.copyfile(SETTINGS, tmp_path / "dagster.yaml")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def _starts(instance: dg.DagsterInstance, at_work: Mapping[str, str], next_: Mapping[str, str]) -> bool:
    """Whether the daemon starts the next run beside eight others."""
    for _ in range(EIGHT):
        create_run_for_test(instance, status=dg.DagsterRunStatus.STARTED, tags=dict(at_work))
    status = dg.DagsterRunStatus.QUEUED
    queued = create_run_for_test(instance, status=status, tags=dict(next_), remote_job_origin=ORIGIN)
    daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)
    found = daemon._get_runs_to_dequeue(instance, instance.get_concurrency_config(), None)
    return [run.run_id for run in found] == [queued.run_id]


@pytest.mark.parametrize("next_", [CONTINUOUS, BEGUN])
def test_continuous_runs_hold_up_no_run(shipped: dg.DagsterInstance, next_: dict[str, str]) -> None:
    assert _starts(shipped, CONTINUOUS, next_)


def test_runs_that_are_long_at_work_hold_up_no_run(shipped: dg.DagsterInstance) -> None:
    assert _starts(shipped, {WORK_TAG: WORK_ASIDE}, BEGUN)


def test_retry_of_a_killed_run_counts_in_the_queue_again(shipped: dg.DagsterInstance) -> None:
    dead: dg.DagsterRun = create_run_for_test(shipped, tags={WORK_TAG: WORK_ASIDE})
    run_queue.count_again(shipped, dead)
    inherited = shipped.get_run_by_id(dead.run_id).tags  # type: ignore[union-attr]
    assert not _starts(shipped, BEGUN, dict(inherited))


def test_retry_of_an_ended_run_counts_in_the_queue_again(
    shipped: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As run monitoring does after `max_runtime_seconds`."""
    long_run: dg.DagsterRun = create_run_for_test(shipped, status=dg.DagsterRunStatus.STARTED, tags=ASIDE)
    monkeypatch.setattr("orchestration.launcher.interrupt", lambda *_: True)
    watched = WatchedRunLauncher()
    watched.register_instance(shipped)
    assert watched.terminate(long_run.run_id)
    inherited = shipped.get_run_by_id(long_run.run_id).tags  # type: ignore[union-attr]
    assert inherited[WORK_TAG] == WORK_BEGUN


def test_eight_runs_that_have_just_begun_are_enough(shipped: dg.DagsterInstance) -> None:
    assert not _starts(shipped, BEGUN, BEGUN)


def test_the_jobs_of_a_pipeline_count_and_the_continuous_one_does_not() -> None:
    found = KafkaPipeline(FLOW.name, FLOW.spec).definitions()
    tags = {name: found.resolve_job_def(name).tags.get(WORK_TAG) for name in ("p", "p_maintenance", "p_continuous")}
    assert tags == {"p": WORK_BEGUN, "p_maintenance": WORK_BEGUN, "p_continuous": None}


def test_a_run_counts_until_it_is_long_at_work(shipped: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run_for_test(shipped, status=dg.DagsterRunStatus.STARTED, tags=BEGUN)
    ended = create_run_for_test(shipped, status=dg.DagsterRunStatus.STARTED, tags=BEGUN)

    def work(run: dg.DagsterRun) -> str:
        found = shipped.get_run_by_id(run.run_id)
        assert found
        return found.tags[WORK_TAG]

    with counting_while_young(shipped, ended.run_id):
        assert work(ended) == WORK_BEGUN
    monkeypatch.setattr(run_queue, "_YOUNG", 0.0)
    with counting_while_young(shipped, run.run_id):
        until(lambda: work(run) == WORK_ASIDE, what="tag")
    assert work(ended) == WORK_BEGUN
