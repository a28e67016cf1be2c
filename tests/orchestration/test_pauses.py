"""What a person has paused does not start, everywhere and at once, and goes on from where it stood."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._core.storage.tags import PARENT_RUN_ID_TAG, RETRY_NUMBER_TAG, SCHEDULE_NAME_TAG
from dagster._core.test_utils import create_run_for_test

from jobs.spec.tables import Table
from orchestration import pauses
from orchestration.cli import pause as pause_command
from orchestration.components.jobs_by_hand import pause_jobs
from orchestration.components.launch import Launch
from orchestration.names import (
    ALTHOUGH_PAUSED_TAG,
    LEFT_OUT_TAG,
    MAINTENANCE_TAG,
    PIPELINE_TAG,
    PROCESS_TAG,
    VERIFY_TAG,
    landing_key,
    op_name,
    table_key,
)
from orchestration.pauses import Pause, Paused, Pauses, holds_step, launched_by_hand, read_pauses
from orchestration.runs.run_process import process_tags
from orchestration.sensors.busy import free_to_advance
from orchestration.step_failures import failure_text
from resources.errors import ConfigurationError
from tests.kit.flow import Flow
from tests.kit.many_topics import write_pipeline
from tests.orchestration.launching import definitions

FLOW = Flow("t", ["append", "upsert"], name="p")
FIRST, SECOND = FLOW.spec.tables
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
BEFORE, AFTER = NOW - timedelta(minutes=1), NOW + timedelta(minutes=1)


def test_it_outlives_the_process_and_names_who_was_first(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        assert read_pauses(instance, "p", FLOW.spec) == Pauses("p")
        pauses.pause(instance, "p", FLOW.spec, None, "anna@host")
        assert pauses.pause(instance, "p", FLOW.spec, None, "ben@host").by == "anna@host"
        pauses.pause(instance, "p", FLOW.spec, FIRST, "ben@host")
        shown = instance.fetch_observations(landing_key("p"), limit=1).records[0].asset_observation
        assert shown
        assert str(shown.description).startswith("paused by anna@host since 2")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        found = read_pauses(instance, "p", FLOW.spec)
        assert found.whole
        assert list(found.tables) == [table_key(FIRST)]
        assert not read_pauses(instance, "q", FLOW.spec).whole
        assert len(pauses.resume(instance, "p", FLOW.spec, None, "ben@host")) == 2
        assert read_pauses(instance, "p", FLOW.spec) == Pauses("p")


def test_a_paused_table_is_left_out_and_the_others_go_on(instance: dg.DagsterInstance) -> None:
    pauses.pause(instance, "p", FLOW.spec, FIRST, "anna")
    free = free_to_advance(instance, "p", FLOW.spec)
    assert free.assets == [landing_key("p"), table_key(SECOND)]
    asked = free.request("2026-05-01-12:00", {})
    assert f"{'/'.join(table_key(FIRST).path)} is paused by anna" in asked.tags[LEFT_OUT_TAG]

    pauses.pause(instance, "p", FLOW.spec, None, "ben")
    assert str(free_to_advance(instance, "p", FLOW.spec).hold).startswith("p is paused by ben since ")
    assert len(pauses.resume(instance, "p", FLOW.spec, FIRST, "anna")) == 1
    assert free_to_advance(instance, "p", FLOW.spec).hold
    pauses.resume(instance, "p", FLOW.spec, None, "anna")
    assert free_to_advance(instance, "p", FLOW.spec).assets is None


def test_tables_that_commit_together_are_paused_together(instance: dg.DagsterInstance) -> None:
    one_commit = FLOW.spec.model_copy(update={"commit": "together"})
    with pytest.raises(ConfigurationError, match="pause them all"):
        pauses.pause(instance, "p", one_commit, FIRST, "anna")


WHOLE = Pauses("p", Pause(by="anna", since=NOW))
ONE = Pauses("p", tables={table_key(FIRST): Pause(by="anna", since=NOW)})


@pytest.mark.parametrize(
    ("found", "tags", "asked_at", "held"),
    [
        (WHOLE, {}, BEFORE, True),
        (WHOLE, {"dagster/schedule_name": "s"}, AFTER, True),
        (WHOLE, {"dagster/retry_number": "1"}, AFTER, True),
        (WHOLE, {ALTHOUGH_PAUSED_TAG: "true"}, AFTER, False),
        (ONE, {}, AFTER, True),
        (Pauses("p"), {}, AFTER, False),
    ],
)
def test_what_is_on_its_way_does_nothing_more(
    found: Pauses, tags: dict[str, str], asked_at: datetime, held: bool
) -> None:
    assert (holds_step(found, table_key(FIRST), tags, asked_at) is not None) == held


@pytest.mark.parametrize(
    ("tags", "by_hand"),
    [
        ({}, True),
        ({SCHEDULE_NAME_TAG: "p_schedule"}, False),
        ({SCHEDULE_NAME_TAG: "p_schedule", PARENT_RUN_ID_TAG: "one"}, True),
        ({SCHEDULE_NAME_TAG: "p_schedule", PARENT_RUN_ID_TAG: "one", RETRY_NUMBER_TAG: "1"}, False),
    ],
)
def test_a_run_that_a_person_executes_again_is_launched_by_hand(tags: dict[str, str], by_hand: bool) -> None:
    """Dagster copies the tags of the run that failed, of the schedule too."""
    assert launched_by_hand(tags) == by_hand


def test_a_launch_by_hand_is_refused_with_the_choices() -> None:
    with pytest.raises(Paused, match=r"p is paused by anna since .* `batchmerge resume p`; or .*--although-paused"):
        holds_step(WHOLE, table_key(FIRST), {}, AFTER)


def test_maintenance_leaves_alone_what_is_paused(instance: dg.DagsterInstance) -> None:
    whole = definitions(FLOW)

    def scheduled() -> dg.RunRequest | dg.SkipReason:
        with dg.build_schedule_context(instance=instance) as context:
            tick = whole.resolve_schedule_def("p_maintenance_schedule").evaluate_tick(context)
        return tick.run_requests[0] if tick.run_requests else dg.SkipReason(tick.skip_message)

    def op(table: Table, **tags: str) -> dg.ExecuteInProcessResult:
        return whole.resolve_job_def("p_maintenance").execute_in_process(
            instance=instance, op_selection=[f"{op_name('p', table_key(table))}__maintenance"], tags=tags,
            raise_on_error=False,
        )  # fmt: skip

    def is_logged(result: dg.ExecuteInProcessResult) -> bool:
        messages = [entry.user_message for entry in instance.all_logs(result.run_id)]
        return any("no maintenance: " in text and "paused by anna since " in text for text in messages)

    assert isinstance(scheduled(), dg.RunRequest)
    pauses.pause(instance, "p", FLOW.spec, FIRST, "anna")
    assert isinstance(scheduled(), dg.RunRequest), "the other tables need it"
    held = op(FIRST)
    assert (held.success, is_logged(held)) == (True, True)

    pauses.pause(instance, "p", FLOW.spec, None, "anna")
    skipped = scheduled()
    assert isinstance(skipped, dg.SkipReason)
    assert str(skipped.skip_message).startswith("p is paused by anna since ")
    on_its_way = op(SECOND, **{"dagster/schedule_name": "p_maintenance_schedule"})
    assert (on_its_way.success, is_logged(on_its_way)) == (True, True)
    by_hand = op(SECOND)
    assert not by_hand.success
    (failed,) = [event for event in by_hand.all_events if event.is_step_failure]
    assert "batchmerge resume p" in failure_text(failed)


@pytest.mark.parametrize("command", [pause_command.pause, pause_command.resume, pause_command.restart])
def test_one_topic_is_refused_before_anything_is_done(
    command: click.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step works on all topics, so nobody would read the pause of one, and a restart ends the runs of all."""
    write_pipeline(tmp_path, "many")
    monkeypatch.setattr("orchestration.files.FOLDER", tmp_path)
    monkeypatch.setattr(pause_command, "dagster_instance", None)
    done = CliRunner().invoke(command, ["many/many.public.t1"])
    assert isinstance(done.exception, ConfigurationError)
    assert "one topic cannot be paused, resumed or restarted" in str(done.exception)
    assert "name many alone, or with it one of 'iceberg many.{table}', 'clickhouse many.{table}'" in str(done.exception)


@pytest.mark.parametrize("nobody", [OSError("No username set in the environment"), KeyError("uid not found: 1001")])
def test_who_has_paused_where_the_user_has_no_name(nobody: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise nobody

    monkeypatch.setattr("getpass.getuser", unknown)
    assert pause_command._who() == f"uid {os.getuid()}@{socket.gethostname()}"


def test_the_buttons_do_the_same(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    pause, resume, restart = pause_jobs(Launch("p", FLOW.spec))

    def press(button: dg.JobDefinition, **config: str) -> None:
        ops = {node.name: {"config": config} for node in button.all_node_defs}
        assert button.execute_in_process(instance=instance, run_config={"ops": ops}).success

    press(pause, table=FIRST.table, by="Anna")
    press(pause)
    found = read_pauses(instance, "p", FLOW.spec)
    assert [one.by for one in found.tables.values()] == ["Anna"]
    assert found.whole
    assert found.whole.by.startswith("somebody in Dagster (run ")
    press(resume)
    assert read_pauses(instance, "p", FLOW.spec) == Pauses("p")

    launches: list[dict[str, Any]] = [
        {"tags": {PIPELINE_TAG: "p"}},
        {"tags": {MAINTENANCE_TAG: "p"}},
        {"tags": {VERIFY_TAG: "p"}},
        {"asset_selection": frozenset({table_key(FLOW.spec.tables[0])})},
        {},
        {"tags": {PIPELINE_TAG: "another"}},
    ]
    hung = [create_run_for_test(instance, job_name="x", status=dg.DagsterRunStatus.STARTED, **one) for one in launches]
    for run in hung:
        instance.add_run_tags(run.run_id, {PROCESS_TAG: process_tags(run.run_id)[PROCESS_TAG].replace("@", "1@")})
    instance.event_log_storage.set_concurrency_slots("landing/p", 1)
    assert instance.event_log_storage.claim_concurrency_slot("landing/p", hung[4].run_id, "step").is_claimed
    monkeypatch.setattr("orchestration.runs.stopping.end_dead_runs", lambda _: None)  # which would end all of them
    monkeypatch.setattr("orchestration.runs.stopping._PATIENCE", 0.0)
    press(restart)
    ended = [run.is_finished for one in hung if (run := instance.get_run_by_id(one.run_id))]
    assert ended == [True] * 5 + [False]
