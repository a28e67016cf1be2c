"""Which continuous run goes on, and which one ends. Without services."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from orchestration import pauses
from orchestration.components import KafkaPipeline
from orchestration.continuous.sensor import tick
from orchestration.names import CONTINUOUS_TAG, FILE_TAG, file_hash
from orchestration.runs import current_run
from orchestration.sensors import lag, lease_state
from resources.errors import Unavailable
from tests.kit.flow import Flow

BEFORE = Flow("t", ["append"], name="p", overrides={"interval": "5s"}).spec
PAUSED = BEFORE.model_copy(update={"paused": True})
AFTER = Flow("t", ["append"], name="p", overrides={"cron": "0 3 * * *", "trigger": {"records": 1000}}).spec
HOURS = dg.HourlyPartitionsDefinition(start_date=AFTER.since, end_offset=1)


def test_only_the_newest_stays(instance: dg.DagsterInstance) -> None:
    """By the order in which they were asked for, whatever the clock said then, and with every run deleted since."""
    old, new = (create_run_for_test(instance, job_name="p_continuous").run_id for _ in range(2))
    for run in (new, old):
        current_run.begin(instance, "p", run)
    assert "newer run" in str(current_run.reason_to_end(instance, "p", old))
    assert current_run.reason_to_end(instance, "p", new) is None
    assert current_run.reason_to_end(instance, "q", old) is None
    for run in (old, new):
        instance.delete_run(run)
    after = create_run_for_test(instance, job_name="p_continuous").run_id
    assert current_run.reason_to_end(instance, "p", after) is None


def _running(instance: dg.DagsterInstance, file: str) -> str:
    """A continuous run of this file, which works."""
    tags = {CONTINUOUS_TAG: "p", FILE_TAG: file}
    run = create_run_for_test(instance, job_name="p_continuous", status=dg.DagsterRunStatus.STARTED, tags=tags)
    current_run.begin(instance, "p", run.run_id)
    return str(run.run_id)


def _scheduled(name: str) -> Callable[[dg.DagsterInstance], object]:
    def look(instance: dg.DagsterInstance) -> object:
        whole, now = KafkaPipeline("p", AFTER).definitions(), datetime.now(UTC)
        with dg.build_schedule_context(instance, now, repository_def=whole.get_repository_def()) as context:
            return whole.resolve_schedule_def(name).evaluate_tick(context)

    return look


LOOKS: dict[str, Callable[[dg.DagsterInstance], object]] = {
    "lag": lambda instance: lag.tick(dg.build_sensor_context(instance), "p", AFTER, HOURS),
    "leases": lambda instance: lease_state.tick(dg.build_sensor_context(instance), "p", AFTER, "clickhouse", HOURS),
    "schedule": _scheduled("p_schedule"),
    "maintenance": _scheduled("p_maintenance_schedule"),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_run_whose_file_has_no_interval_any_more_ends_at_the_next_tick_of_anything(
    look: str, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while no system answers."""

    def refuse(*_: object) -> None:
        raise Unavailable("no answer")

    monkeypatch.setattr(lag, "load_connections", refuse)
    monkeypatch.setattr(lease_state, "load_connections", refuse)
    run = _running(instance, file_hash(BEFORE))
    LOOKS[look](instance)
    assert "file does not want it" in str(current_run.reason_to_end(instance, "p", run))
    assert current_run.reason_to_end(instance, "p", _running(instance, file_hash(BEFORE))) is None, "asked for later"


def test_a_pause_ends_what_was_started_before_it_and_not_what_a_person_launches_then(
    instance: dg.DagsterInstance,
) -> None:
    before, by_hand = (_running(instance, file_hash(spec)) for spec in (BEFORE, PAUSED))
    assert "newer run" in str(current_run.reason_to_end(instance, "p", before))
    assert "`paused: true` in its file" in str(tick(instance, "p", PAUSED, None).skip_reason)
    assert current_run.reason_to_end(instance, "p", by_hand) is None
    again = _running(instance, file_hash(BEFORE))
    tick(instance, "p", PAUSED, None)
    assert "file does not want it" in str(current_run.reason_to_end(instance, "p", again))


def test_the_pause_of_a_person_leaves_what_is_launched_although_paused(instance: dg.DagsterInstance) -> None:
    """Its steps see such a pause themselves, and end unless the launch says so."""
    pauses.pause(instance, "p", BEFORE, None, "anna")
    run = _running(instance, file_hash(BEFORE))
    assert "paused by anna" in str(tick(instance, "p", BEFORE, None).skip_reason)
    assert current_run.reason_to_end(instance, "p", run) is None
