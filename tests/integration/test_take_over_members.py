"""`offsets take-over` of a pipeline with `for_each`: one command for all topics, whose records say key and columns."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from jobs import protocol
from jobs.batch import CommittedState
from jobs.failpoints import TAKE_OVER
from jobs.members.known_topics import known_topics
from jobs.members.landing import land
from jobs.members.members import Members
from jobs.pipeline import Pipeline
from jobs.resets.take_over import carry_out_each, plan_each
from jobs.spec.pipeline import PipelineSpec
from resources.connections import Connections
from tests.kit import specs
from tests.kit.command import Call, call_in_process
from tests.kit.empty_instance import make_empty_instance
from tests.kit.interrupting import die_at_each
from tests.kit.kinds import KINDS
from tests.kit.records import bootstrap
from tests.kit.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("clickhouse")

SHOWN = ("iceberg", "clickhouse")


class Shop:
    """Some topics, one table of each kind for each, under the name of whichever pipeline has them now."""

    def __init__(self, connections: Connections, topic: Callable[..., str], folder: Path) -> None:
        self.connections, self.folder = connections, folder
        self.prefix = f"take{uuid.uuid4().hex[:6]}"
        self.topics = {table: topic(f"{self.prefix}.{table}") for table in ("orders", "items")}
        self.document = specs.document(
            *(
                specs.table(kind, "upsert_delete", f"tests.{self.prefix}_{{table}}", **KINDS[kind].options)
                for kind in SHOWN
            ),
            source={
                "topics": [],
                "pattern": rf"{self.prefix}\.(?P<table>.+)-[0-9a-f]{{8}}",
                "for_each": "topic",
                "key": {"format": "json"},
                "value": {"format": "json"},
            },
            control={"enabled": False},
        )

    def members(self, name: str) -> Members:
        specs.write(self.folder, name, self.document)
        return Members(name, PipelineSpec.model_validate(self.document), self.connections, "test")

    def write(self, ids: Sequence[int], text: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap(self.connections)})
        for table, topic in self.topics.items():
            for one in ids:
                value = {"id": one, "name": f"{text} of {table}", "amount": one}
                producer.produce(topic, json.dumps(value), key=json.dumps({"id": one}))
        assert producer.flush(PATIENCE) == 0

    def advance(self, name: str) -> None:
        members = self.members(name)
        problems = [o.problem for o in land(members, members.look(), 0)]
        for entry in range(len(SHOWN)):
            problems += [o.problem for o in members.each("tables", members.known(), partial(_merge, entry))]
        assert not any(problems), problems

    def states(self) -> dict[str, list[CommittedState | None]]:
        """What the tables of each topic have, as the old pipeline's."""
        old = self.members("old")
        return {m.key: [table.committed() for table in old.open(m).destinations()] for m in old.known()}

    def rows(self, kind: str, table: str) -> list[tuple[Any, ...]]:
        found = KINDS[kind].rows(self.connections, f"tests.{self.prefix}_{table}")
        return sorted((row["id"], row["name"], row["amount"]) for row in found)

    def check(self, **names: Sequence[int]) -> None:
        for table in self.topics:
            expected = sorted((one, f"{text} of {table}", one) for text, ids in names.items() for one in ids)
            assert {kind: self.rows(kind, table) for kind in SHOWN} == dict.fromkeys(SHOWN, expected)


def _merge(entry: int, pipeline: Pipeline) -> object:
    return protocol.merge(pipeline, pipeline.destinations()[entry])


@pytest.fixture
def shop(connections: Connections, topic: Callable[..., str], tmp_path: Path) -> Shop:
    made = Shop(connections, topic, tmp_path)
    made.write([1, 2, 3], "first")
    made.advance("old")
    return made


@pytest.fixture
def call(stack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.setattr("orchestration.files.FOLDER", tmp_path)
    monkeypatch.setenv("BATCHMERGE_HOME", str(stack))
    make_empty_instance(tmp_path / "dagster")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    return call_in_process(monkeypatch, capsys)


def test_one_command_takes_the_tables_of_all_topics_over(shop: Shop, call: Call) -> None:
    new = shop.members("new")
    known = new.look().members
    (problem, _) = [o.problem for o in new.each("check", known, lambda p: p.destinations()[0].prepare(dry_run=True))]
    assert problem
    assert "offsets take-over new --from old`" in str(problem)

    code, output, _ = call("offsets", "take-over", "new", "--from", "old")
    assert (code, output.count("goes on where batch 1"), "Nothing was changed" in output) == (0, 2, True), output
    code, output, errors = call("offsets", "take-over", "new", "--from", "old", "--yes", "--json")
    assert (code, len(json.loads(output)["tables"])) == (0, 4), errors
    code, output, _ = call("offsets", "take-over", "new", "--from", "old", "--yes")
    assert (code, "Pipeline old has no state of these tables." in output) == (0, True), output

    shop.write([3, 4], "second")
    shop.advance("new")
    shop.check(first=[1, 2], second=[3, 4])
    with pytest.raises(AssertionError, match="take-over old --from new"):
        shop.advance("old")
    shop.check(first=[1, 2], second=[3, 4])


@pytest.mark.slow
def test_take_over_changes_nothing_where_one_topic_cannot_go_on(shop: Shop, call: Call) -> None:
    states = shop.states()
    key = {"columns": ["amount"], "source": "value"}
    override = {"source": {"value": {"columns": {"amount": "long"}}}, "changes": {"key": key, "order_by": "arrival"}}
    shop.document["overrides"] = {shop.topics["items"]: override}
    shop.members("new")
    code, _, errors = call("offsets", "take-over", "new", "--from", "old", "--yes")
    assert code != 0
    assert "`changes` (key, op mapping or order) is not what pipeline old__" in errors
    del shop.document["overrides"]
    assert shop.states() == states


@pytest.mark.slow
def test_take_over_that_dies_anywhere_is_completed_by_doing_it_again(shop: Shop) -> None:
    new = shop.members("new")
    topics = set(shop.topics.values())
    assert {one.key for one in plan_each(new, "old") if one.done} == topics
    assert topics <= set(known_topics("new", new.spec))

    def again() -> None:
        assert not [one.problem for one in carry_out_each(new, "old") if one.problem]

    assert set(die_at_each(again)) == {*TAKE_OVER, "land.published"}
    shop.write([3, 4], "second")
    shop.advance("new")
    shop.check(first=[1, 2], second=[3, 4])
