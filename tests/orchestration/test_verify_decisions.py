"""What the verification decides without any service: which offsets were landed, and when two values are the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._core.test_utils import create_run_for_test

from jobs.batch import LandedBatch
from jobs.destinations.bigquery.statements import Whole
from jobs.destinations.row_values import comparable
from jobs.lineage import of_one_meaning
from jobs.members.members import Members
from jobs.offsets import OffsetRange, TopicPartition
from jobs.spec.members import Member
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.verify.landed_spans import from_the_first, landed_spans
from jobs.verify.reconciliation import Verdict
from orchestration.cli import verify as command
from orchestration.cli.verify import exit_code
from orchestration.components import KafkaPipeline, verify
from orchestration.components.launch import Launch
from orchestration.names import pool, table_key
from orchestration.pools.pool_waits import PoolWaits, holders
from orchestration.pools.turns import turn as real_turn
from resources.connections import Connections
from resources.errors import BatchmergeError, CommitFailed, TerminalError, Unavailable
from sql import render
from tests.kit import many_topics, specs
from tests.kit.batches import landed

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def _landed(*batches: dict[TopicPartition, tuple[int, int]]) -> list[LandedBatch]:
    spans = [{tp: OffsetRange(*span) for tp, span in ranges.items()} for ranges in batches]
    return [landed(number, ranges=of) for number, of in enumerate(spans, start=1)]


def test_ranges_that_overlap_or_are_next_to_each_other_are_one_span() -> None:
    landed = _landed({A: (5, 9), B: (0, 0)}, {A: (9, 12), B: (0, 3)}, {A: (20, 22), B: (3, 3)}, {A: (7, 11)})
    assert landed_spans(landed, {}) == {
        (A, 0): [OffsetRange(5, 12), OffsetRange(20, 22)],
        (B, 0): [OffsetRange(0, 3)],
    }


def test_topics_of_one_name_have_spans_of_their_own() -> None:
    landed = _landed({A: (0, 9)}, {A: (0, 0)}, {A: (0, 5)})
    assert landed_spans(landed, {"t": [2]}) == {(A, 0): [OffsetRange(0, 9)], (A, 1): [OffsetRange(0, 5)]}
    assert from_the_first(landed, {"t": [2]})


def test_batches_of_another_meaning_are_not_judged() -> None:
    one, two, three = _landed({A: (0, 1)}, {A: (1, 2)}, {A: (2, 3)})
    older = replace(two, batch=replace(two.batch, meaning_hash="older"))
    assert of_one_meaning([one, older, three]) == [three]
    assert of_one_meaning([one, two]) == [one, two]
    assert of_one_meaning([]) == []


@pytest.mark.parametrize(
    ("batches", "every"),
    [
        ([{A: (0, 5), B: (0, 0)}, {A: (5, 9), B: (0, 2)}], True),
        ([{A: (0, 0), B: (0, 0)}], True),
        ([{A: (3, 3), B: (0, 0)}, {A: (3, 9), B: (0, 2)}], False),  # began at the end of the topic
        ([{A: (3, 3)}], False),
        ([{A: (0, 5)}, {A: (5, 5)}, {A: (8, 8)}, {A: (8, 9)}], False),  # offsets were set
        ([{A: (0, 5)}, {A: (2, 2)}, {A: (2, 4)}], True),  # set back
    ],
)
def test_whether_every_record_was_landed(batches: list[dict[TopicPartition, tuple[int, int]]], every: bool) -> None:
    assert from_the_first(_landed(*batches), {}) == every


@pytest.mark.parametrize(
    ("one", "other", "empty_is_null", "same"),
    [
        ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)], False, True),  # a map
        ([("a", 1)], [("a", 2)], False, False),
        (["a", "b"], ["b", "a"], False, False),
        ({"x": math.nan, "Y": [None]}, {"y": [None], "x": math.nan}, False, True),
        ({"x": 0.0}, {"x": None}, False, False),
        ([], None, False, False),
        ({"x": []}, {"x": None}, True, True),
        ([], None, True, True),
        (["None"], [None], False, False),
        (["a, b"], ["a", "b"], False, False),
        (Decimal("1.10"), Decimal("1.1"), False, True),
        (-0.0, 0, False, True),
        ([math.inf], [-math.inf], False, False),
        (0.1, Decimal("0.1"), False, False),
        (
            datetime(2026, 5, 1, 12, tzinfo=UTC),
            datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))),
            False,
            True,
        ),
        (datetime(2026, 5, 1, 12), datetime(2026, 5, 1, 12, 0, 1), False, False),
    ],
)
def test_when_two_values_are_the_same(one: object, other: object, empty_is_null: bool, same: bool) -> None:
    assert (comparable(one, empty_is_null) == comparable(other, empty_is_null)) == same


@pytest.mark.parametrize("template", ["count_rows", "some_rows", "duplicate_keys"])
def test_bigquery_is_asked_with_the_filter_that_a_table_demands(template: str) -> None:
    arguments = {"table": ("p.d.t",), "columns": ["id"], "texts": {}, "limit": 0, "keys": ["id"]}
    demanded = "WHERE (`_PARTITIONTIME` IS NULL OR `_PARTITIONTIME` >= TIMESTAMP '0001-01-01')"
    assert demanded in render("bigquery", template, whole=Whole("_PARTITIONTIME", "TIMESTAMP"), **arguments)
    assert "WHERE" not in render("bigquery", template, whole=None, **arguments)


@pytest.mark.parametrize(
    ("first", "second", "code", "shown"),
    [
        (Verdict(3, 10), Verdict(3, 10), 0, {"reconciled": True, "tables_agree": True}),
        (Verdict(3, 10), Unavailable("no answer"), 3, {"reconciled": True}),
        (Verdict(3, 10), CommitFailed("the table moved on"), 3, {"reconciled": True}),
        (Unavailable("no answer"), TerminalError("no permission"), 2, {}),
        (Verdict(3, 10, wrong=["x"]), Unavailable("no answer"), 1, {"reconciled": False}),
    ],
)
def test_a_table_that_cannot_be_compared_is_no_failed_check(
    first: Verdict | BatchmergeError,
    second: Verdict | BatchmergeError,
    code: int,
    shown: dict[str, bool],
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = specs.spec(specs.table(name="n.first"), specs.table(name="n.second"))
    answers, held = dict(zip(("n.first", "n.second"), (first, second), strict=True)), list[str]()
    for table in spec.tables:
        instance.event_log_storage.set_concurrency_slots(pool(table_key(table)), 1)

    def verdict(_pipeline: object, table: Table, _rows: int) -> Verdict:
        held.extend(holders(instance, [pool(table_key(table))]))
        if isinstance(answer := answers[table.table], BatchmergeError):
            raise answer
        return answer

    monkeypatch.setattr(Launch, "open", lambda *_: None)
    monkeypatch.setattr(verify, "_verdict", verdict)
    job = KafkaPipeline("p", spec).definitions().resolve_job_def("p_verify")

    result = job.execute_in_process(instance=instance, raise_on_error=False)

    assert exit_code(result) == code
    checks = result.get_asset_check_evaluations()
    assert {check.check_name: check.passed for check in checks} == shown
    assert ["works on iceberg/n/first" in held[0], "works on iceberg/n/second" in held[1]] == [True, True]
    assert holders(instance, [pool(table_key(table)) for table in spec.tables]) == []


def test_tables_of_many_topics_take_turns_with_merges(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = PipelineSpec.model_validate(many_topics.document(batch={"at_once": 2}))
    pools = [pool(table_key(table)) for table in spec.tables]
    for one in pools:
        instance.event_log_storage.set_concurrency_slots(one, 1)
    members = Members("many", spec, Connections({}, ""), "", ())
    topics = [Member(topic, topic, spec) for topic in many_topics.topics(5)]
    turns, compared = list[list[str]](), list[tuple[int, str, list[str]]]()

    @contextmanager
    def turn(context: dg.OpExecutionContext, claimed: Collection[str], waits: PoolWaits) -> Iterator[None]:
        turns.append([*claimed])
        with real_turn(context, claimed, waits=waits):
            yield

    def open_member(_members: Members, member: Member, _session: object) -> object:
        landed = SimpleNamespace(landed=lambda: SimpleNamespace(batches=[1]))
        return SimpleNamespace(topic=member.key, intermediate=landed, table=lambda number: spec.tables[number])

    def verdict(opened: SimpleNamespace, table: Table, _rows: int) -> Verdict:
        compared.append((len(turns), opened.topic, [one for one in pools if holders(instance, [one])]))
        if (opened.topic, table) == (topics[1].key, spec.tables[0]):
            raise Unavailable("no answer")
        return Verdict(3, 10)

    monkeypatch.setattr(Launch, "members", lambda *_: members)
    monkeypatch.setattr(Members, "known", lambda _: topics)
    monkeypatch.setattr(Members, "open", open_member)
    monkeypatch.setattr(verify, "_verdict", verdict)
    monkeypatch.setattr(verify, "turn", turn)
    job = KafkaPipeline("many", spec).definitions().resolve_job_def("many_verify")

    result = job.execute_in_process(instance=instance, raise_on_error=False)

    assert turns == [[pools[0]]] * 3 + [[pools[1]]] * 3
    assert [held for _, _, held in compared] == [[pools[0]]] * 5 + [[pools[1]]] * 5
    assert max(Counter(turn for turn, _, _ in compared).values()) == 2
    assert exit_code(result) == 3
    passed = [(check.asset_key, check.check_name) for check in result.get_asset_check_evaluations() if check.passed]
    assert {key for key, _ in passed} == {table_key(spec.tables[1])}, "the others are not known of all topics"


def test_a_command_that_is_not_to_wait_names_who_holds_a_table(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = specs.spec(specs.table(name="n.first"))
    held = pool(table_key(spec.tables[0]))
    run: dg.DagsterRun = create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.STARTED)
    instance.event_log_storage.set_concurrency_slots(held, 1)
    assert instance.event_log_storage.claim_concurrency_slot(held, run.run_id, "step").is_claimed
    monkeypatch.setattr("orchestration.cli.run.pipeline_spec", lambda _: spec)
    monkeypatch.setattr(command, "dagster_instance", lambda: nullcontext(instance))

    done = CliRunner().invoke(command.verify, ["p", "--no-wait"])

    assert isinstance(done.exception, Unavailable), done.output
    assert f"works on {held}" in str(done.exception)
