"""A topic that fails in the landing: which step says so, and which is tried again. Without services."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.storage.tags import SCHEDULE_NAME_TAG

from jobs.members.known_topics import remember
from jobs.members.members import Members
from jobs.members.topics import Seen
from jobs.spec.members import Member
from jobs.spec.pipeline import PipelineSpec
from orchestration.cli.job_runs import RunResult, run_job
from orchestration.components import KafkaPipeline, member_steps, resting
from orchestration.components.member_checks import TableSeen
from orchestration.components.metadata import FAILED
from orchestration.names import landing_key
from resources.errors import TimeLimitReached, Unavailable
from tests.kit.many_topics import document

NAME, TOPIC = "many", "many.public.t1"
SPEC = PipelineSpec.model_validate(document(NAME, ("iceberg",), retry={"max_retries": 1, "delay_seconds": 1}))
SCHEDULED = {SCHEDULE_NAME_TAG: "many_schedule"}
CONNECTIONS = {
    "kafka": {"kind": "kafka", "bootstrap_servers": "127.0.0.1:1", "timeout_seconds": 1},
    "lake": {"kind": "iceberg", "type": "sql", "uri": "sqlite://", "warehouse": "/nowhere"},
    "spark": {"kind": "spark", "master": "local[1]"},
}


@pytest.fixture(autouse=True)
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline whose only topic does not answer."""
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path))
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(tmp_path / "connections.yaml"))
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump({"connections": CONNECTIONS}))
    failed = {TOPIC: Unavailable("no answer", where=TOPIC)}
    monkeypatch.setattr(Members, "look", lambda _: Seen([], {}, dict(failed), ()))


def _run(instance: dg.DagsterInstance, **options: Any) -> tuple[RunResult, list[str | None]]:
    """The run, and the steps that it has tried again."""
    result = run_job(instance, KafkaPipeline(NAME, SPEC).definitions(), NAME, {}, **options)
    again = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.STEP_UP_FOR_RETRY)
    return result, [entry.step_key for entry in again]


def test_the_step_of_a_table_tells_it_and_is_not_tried_again_for_it(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = member_steps.behind

    def another_run_lands_meanwhile(*arguments: Any) -> Any:
        instance.report_runless_asset_event(dg.AssetMaterialization(landing_key(NAME)))
        return behind(*arguments)

    monkeypatch.setattr(member_steps, "behind", another_run_lands_meanwhile)
    result, again = _run(instance)
    assert [step.problem is None for step in result.steps] == [True, False]
    assert f"1 topic failed, the others are done: {TOPIC}: " in str(result.tables[0].problem)
    assert again == []


def test_a_landing_without_tables_after_it_tells_it_and_is_tried_again(instance: dg.DagsterInstance) -> None:
    result, again = _run(instance, assets=[landing_key(NAME)])
    assert f"1 topic failed, the others are done: {TOPIC}: " in str(result.landing.problem)
    assert len(again) == 1


def test_a_table_that_hung_is_left_out_for_a_while_and_the_others_are_merged(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, others = list[list[str]](), ["many.public.t2"]
    remember(NAME, [TOPIC, *others])
    hung = TimeLimitReached("no answer", where=TOPIC, seconds=600)

    def behind(_: object, __: int, known: Sequence[Member], *___: object) -> Any:
        topics = [member.topic for member in known]
        looked.append(topics)
        seen = {topic: TableSeen(topic, None) for topic in topics if topic != TOPIC}
        return [], seen, {TOPIC: hung} if TOPIC in topics else {}

    monkeypatch.setattr(Members, "look", lambda _: Seen([], {}, {}, ()))
    monkeypatch.setattr(Members, "landed", lambda _: [])
    monkeypatch.setattr(member_steps, "behind", behind)
    first, again = _run(instance, tags=SCHEDULED)
    assert "no answer" in str(first.tables[0].problem)
    assert again == [], "the next run tries what hangs"
    one = {"topics": others}
    run_job(instance, KafkaPipeline(NAME, SPEC).definitions(), NAME, one)
    second, again = _run(instance, tags=SCHEDULED)
    assert f"{TOPIC}: left out until" in str(second.tables[0].problem)
    assert again == []
    third, _ = _run(instance, tags=SCHEDULED)
    assert "left out until" in str(third.tables[0].problem)
    _run(instance)
    assert looked == [[TOPIC, *others], others, others, others, [TOPIC, *others]], "a person's run tries all"


def test_where_all_tables_hang_none_rests(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold up nobody, and the next run finds the system back."""
    looked = list[str]()
    remember(NAME, [TOPIC])

    def behind(_: object, __: int, known: Sequence[Member], *___: object) -> Any:
        looked.extend(member.topic for member in known)
        return [], {}, {member.topic: TimeLimitReached("no answer", seconds=600) for member in known}

    monkeypatch.setattr(Members, "look", lambda _: Seen([], {}, {}, ()))
    monkeypatch.setattr(Members, "landed", lambda _: [])
    monkeypatch.setattr(member_steps, "behind", behind)
    for _ in range(2):
        _run(instance, tags=SCHEDULED)
    assert looked == [TOPIC] * 2


def test_its_rest_has_an_end(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    key, problem = landing_key(NAME), TimeLimitReached("no answer", seconds=600)
    shown = {FAILED: dg.MetadataValue.json({TOPIC: {"problem": str(problem), **resting.rest(problem)}})}
    instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=shown))
    now, found = time.time(), resting.resting(instance, key)
    assert found.keys() == {TOPIC}
    assert resting.rest(found[TOPIC]) == resting.rest(found[TOPIC])
    assert 1700 < resting.rest(found[TOPIC])["rests until"] - now < 1900
    monkeypatch.setattr(resting, "time", SimpleNamespace(time=lambda: now + 1801))
    assert resting.resting(instance, key) == {}
    assert resting.rest(Unavailable("no answer")) == {}
