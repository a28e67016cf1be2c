"""A topic that fails in the landing: which step says so, and which is tried again. Without services."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.storage.tags import SCHEDULE_NAME_TAG

from jobs.batch import LandedBatch
from jobs.members.known_topics import remember
from jobs.members.members import Members
from jobs.members.side_by_side import Outcome
from jobs.members.topics import Seen
from jobs.spec.members import Member
from jobs.spec.pipeline import Freshness, PipelineSpec
from orchestration.cli.job_runs import RunResult, run_job
from orchestration.components import KafkaPipeline, checks, landing, member_checks, member_steps, suspended_members
from orchestration.components.member_checks import TableSeen
from orchestration.components.suspended_members import SuspendedMembers
from orchestration.components.window import Window
from orchestration.names import landing_key, table_key
from resources.errors import BatchmergeError, OffsetsGone, TimeLimitReached, Unavailable
from tests.kit.batches import landed
from tests.kit.many_topics import document

NAME, TOPIC = "many", "many.public.t1"
SPEC = PipelineSpec.model_validate(document(NAME, ("iceberg",), retry={"max_retries": 1, "delay_seconds": 1}))
HUNG = TimeLimitReached("no answer", where=TOPIC, seconds=600)
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


def test_the_step_of_a_table_reports_it_and_is_not_tried_again_for_it(
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


def test_a_landing_without_tables_after_it_reports_it_and_is_tried_again(instance: dg.DagsterInstance) -> None:
    result, again = _run(instance, assets=[landing_key(NAME)])
    assert f"1 topic failed, the others are done: {TOPIC}: " in str(result.landing.problem)
    assert len(again) == 1


def test_a_replay_reads_from_kafka_what_is_before_a_topics_first_batch(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what is before the first batch of another topic. The tables' step reports what Kafka no longer has."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    first, last = now - timedelta(hours=5), now - timedelta(hours=4)
    began = {TOPIC: now, "many.public.t2": first, "many.public.t3": now}
    remember(NAME, [*began])

    def opened(_: object, member: Member, *__: object) -> Any:
        one = landed(1, planned_at=int(began[member.key].timestamp() * 1000))
        place = SimpleNamespace(landed=lambda: SimpleNamespace(batches=[one]))
        topic, in_time = member.key, lambda work: work()
        return SimpleNamespace(name=topic, only=None, spec=member.spec, intermediate=place, land_in_time=in_time)

    def reread(pipeline: Any, wanted: object) -> LandedBatch:
        read[pipeline.name] = wanted
        if pipeline.name == "many.public.t3":
            raise OffsetsGone("Kafka has only younger records", where=pipeline.name)
        return landed(2)

    read = dict[str, object]()
    monkeypatch.setattr(Members, "open", opened)
    monkeypatch.setattr(Members, "ends", lambda *_: {})
    monkeypatch.setattr(Members, "each_merging", lambda *_: iter(()))
    monkeypatch.setattr("orchestration.open_lineage.send_landed", lambda *_: None)
    monkeypatch.setattr(landing, "from_time", lambda _, *times, what_is_left: (*times, what_is_left))
    monkeypatch.setattr(landing, "reread_from_kafka", reread)
    hours = (f"{first:%Y-%m-%d-%H:00}", f"{last:%Y-%m-%d-%H:00}")
    spec = SPEC.model_copy(update={"freshness": None})
    result = run_job(instance, KafkaPipeline(NAME, spec).definitions(), NAME, {"mode": "replay"}, hours=hours)
    assert read == dict.fromkeys([TOPIC, "many.public.t3"], (first, last + timedelta(hours=1), False))
    shown = result.landing.metadata
    assert ([row["topic"] for row in shown["topics"]], shown["read"]) == ([TOPIC], 20)
    assert shown["read again"] == str(Window(first, last + timedelta(hours=1)))
    assert [*shown["failed topics"]] == ["many.public.t3"]
    assert result.landing.problem is None
    assert "1 topic failed, the others are done: many.public.t3: " in str(result.tables[0].problem)


def _looking(monkeypatch: pytest.MonkeyPatch, answers: Callable[[str], object]) -> list[list[str]]:
    """The topics whose tables each run looks at.

    Args:
        answers: an error; False: the table is behind; True: it is not.
    """
    looked = list[list[str]]()

    def behind(_: object, __: int, known: Sequence[Member], *___: object) -> Any:
        found = {member.key: answers(member.key) for member in known}
        looked.append([*found])
        seen = {topic: TableSeen(topic, None) for topic, answer in found.items() if answer is True}
        problems = {topic: answer for topic, answer in found.items() if isinstance(answer, BatchmergeError)}
        return [member for member in known if found[member.key] is False], seen, problems

    monkeypatch.setattr(Members, "look", lambda _: Seen([], {}, {}, ()))
    monkeypatch.setattr(Members, "landed", lambda _: ([], {}))
    monkeypatch.setattr(Members, "ends", lambda *_: {})
    monkeypatch.setattr(member_steps, "behind", behind)
    return looked


def _merging(monkeypatch: pytest.MonkeyPatch, problem: BatchmergeError) -> None:
    """Every merge fails by it."""

    def each(_: object, __: str, due: Sequence[Member], *___: object) -> Iterator[Outcome[Any]]:
        yield from (Outcome(member.key, member, problem=problem) for member in due)

    monkeypatch.setattr(Members, "each_merging", each)


def test_a_table_that_hung_is_left_out_for_a_while_and_the_others_are_merged(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, hangs = ["many.public.t2"], [TOPIC]
    remember(NAME, [TOPIC, *others])
    looked = _looking(monkeypatch, lambda topic: HUNG if topic in hangs else True)
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
    hangs.clear()
    _run(instance)
    _run(instance, tags=SCHEDULED)
    both = [TOPIC, *others]
    assert looked == [both, others, others, others, both, both], "a person's run tries all, and its success counts"


def test_a_table_that_does_not_answer_is_suspended_also_where_all_others_are_behind(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "many.public.t2"
    remember(NAME, [TOPIC, other])
    looked = _looking(monkeypatch, lambda topic: HUNG if topic == TOPIC else False)
    monkeypatch.setattr(Members, "each_merging", lambda *_: iter(()))
    for _ in range(2):
        _run(instance, tags=SCHEDULED)
    assert looked == [[TOPIC, other], [other]]


@pytest.mark.parametrize("hang", ["looks", "merges"])
def test_where_all_tables_hang_none_is_suspended(
    hang: str, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would hold up nobody, also where others have nothing new, and the next run finds the system back."""
    idle = ["many.public.t2"] if hang == "merges" else []
    remember(NAME, [TOPIC, *idle])
    looked = _looking(monkeypatch, lambda topic: True if topic in idle else HUNG if hang == "looks" else False)
    _merging(monkeypatch, HUNG)
    for _ in range(2):
        _run(instance, tags=SCHEDULED)
    assert looked == [[TOPIC, *idle]] * 2


def test_a_table_that_does_not_answer_is_not_caught_up_and_not_asked_again(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by the checks of the run that has waited for it, nor by those of a run that leaves it out."""
    other, asked = "many.public.t2", list[str]()
    remember(NAME, [TOPIC, other])
    spec = SPEC.model_copy(update={"freshness": Freshness()})
    _looking(monkeypatch, lambda topic: HUNG if topic == TOPIC else True)

    def opened(_: object, member: Member, *__: object) -> Any:
        def ask() -> None:
            asked.append(member.key)

        destination = SimpleNamespace(name=member.key, committed=ask, states=ask)
        table = member.spec.tables[0]
        return SimpleNamespace(only=None, spec=member.spec, table=lambda _: table, destination_of=lambda _: destination)

    monkeypatch.setattr(Members, "open", opened)
    monkeypatch.setattr(member_checks, "settled", lambda pipeline, *_: asked.append(pipeline.spec.source.topics[0]))
    for _ in range(2):
        run_job(instance, KafkaPipeline(NAME, spec).definitions(), NAME, {}, tags=SCHEDULED)
        check = dg.AssetCheckKey(table_key(spec.tables[0]), checks.CAUGHT_UP)
        assert [label for label in member_checks.wrong_before(instance, check) if label.startswith(TOPIC)]
    assert TOPIC not in asked


def test_its_suspension_has_an_end(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    suspended, now = SuspendedMembers(instance, landing_key(NAME)), time.time()
    problem = TimeLimitReached("no answer", seconds=600)
    suspended.record([], {TOPIC: problem, "fails": Unavailable("no answer")}, [TOPIC, "fails"])
    assert suspended.now().keys() == {TOPIC}
    for seconds, suspended_now in ((1790, {TOPIC}), (1900, set[str]())):
        monkeypatch.setattr(suspended_members, "time", SimpleNamespace(time=lambda seconds=seconds: now + seconds))
        assert suspended.now().keys() == suspended_now
    suspended.record([], {TOPIC: problem})
    assert suspended.now().keys() == {TOPIC}, "it was suspended before, so it is not that all hang"
    suspended.record([TOPIC], {})
    suspended.record([], {TOPIC: problem})
    assert suspended.now() == {}
