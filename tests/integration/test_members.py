"""Topics of one pipeline (`for_each`), landed and merged side by side: what Spark and Kafka do for all of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer

from jobs import protocol
from jobs.batch import CommittedState
from jobs.circuit_breaker import CircuitBreaker
from jobs.destinations.iceberg.destination import IcebergDestination
from jobs.members import known_members, members
from jobs.members.landing import land
from jobs.members.members import Members
from jobs.members.topics import states_of
from jobs.merged import MergedBatches
from jobs.offsets import TopicPartition
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from jobs.spark.spark_tasks import reports_for_each
from jobs.spec.pipeline import PipelineSpec
from orchestration.components import checks
from orchestration.components.ends import EndsByMember
from orchestration.components.member_checks import table_results_of_members
from orchestration.components.member_metadata import MergedMember
from orchestration.components.member_steps import behind
from orchestration.names import table_key
from resources.connections import Connections
from resources.control_topic import ControlWriter
from resources.errors import BatchmergeError
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_offsets
from tests.kit import specs
from tests.kit.engine import catalog
from tests.kit.events import check_all_published, cluster, events, settled_offsets
from tests.kit.received import check_no_rows, incompressible, received
from tests.kit.records import bootstrap
from tests.kit.waiting import PATIENCE

Rows = list[dict[str, Any]]


class Shop:
    """A pipeline of all topics `<prefix>.<table>-…`, into Iceberg tables of the same names.

    Attributes:
        jobs: of how many tables each Spark job was that merged for several.
        transactions: of how many events each was.
    """

    def __init__(self, connections: Connections, topic: Callable[..., str]) -> None:
        self.connections, self._topic = connections, topic
        self.name, self.topics = f"side{uuid.uuid4().hex[:6]}", dict[str, str]()
        self.overrides: dict[str, Any] = {}
        self.start = "earliest"
        self.jobs: list[int] = []
        self.transactions: list[int] = []
        self.control: dict[str, Any] = {"enabled": False}

    def make(self, *tables: str) -> None:
        self.topics |= {table: self._topic(f"{self.name}.{table}") for table in tables}

    def write(self, ids: Sequence[int], text: str, *tables: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap(self.connections)})
        for table in tables or self.topics:
            for one in ids:
                value = json.dumps({"id": one, "name": f"{text} of {table}", "at": one})
                producer.produce(self.topics[table], value, key=b"k")
        assert producer.flush(PATIENCE) == 0

    @property
    def members(self) -> Members:
        document = specs.document(
            specs.table("iceberg", "upsert", f"{self.name}.{{table}}"),
            columns={"id": "long", "name": "string", "at": "long"},
            key="id",
            source={
                "topics": [],
                "pattern": rf"{self.name}\.(?P<table>.+)-[0-9a-f]{{8}}",
                "for_each": "topic",
                "start": self.start,
            },
            overrides=self.overrides,
            control=self.control,
        )
        return Members(self.name, PipelineSpec.model_validate(document), self.connections, "test")

    def advance(self, by: Members | None = None) -> dict[str, Any]:
        """Rows that each topic's table has got; or why it has got none."""
        every, names = by or self.members, {topic: table for table, topic in self.topics.items()}
        assert not [outcome.problem for outcome in land(every, every.look(), 0) if outcome.problem]
        found = every.each_merging("tables-0", every.known(), _merge)
        return {names[o.key]: o.done.merged.counts.changes if o.done else o.problem for o in found}

    def rows(self, table: str) -> Rows:
        found: Rows = catalog(self.connections).require(f"{self.name}.{table}").scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: [*row.values()])


def _merge(pipeline: Pipeline) -> MergedBatches | None:
    return protocol.merge(pipeline, pipeline.destinations()[0])


@pytest.fixture
def shop(connections: Connections, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop(connections, topic)

    def counted(spark: Any, tasks: Sequence[Any]) -> list[list[str]]:
        made.jobs.append(len(tasks))
        return reports_for_each(spark, tasks)

    def sent(writer: ControlWriter, messages: Any, *others: Any) -> None:
        made.transactions.append(len(messages))
        send(writer, messages, *others)

    send = ControlWriter.send_messages
    monkeypatch.setattr(members, "reports_for_each", counted)
    monkeypatch.setattr(ControlWriter, "send_messages", sent)
    return made


@pytest.fixture
def control(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> str:
    """The shop's control topic, which does not exist yet. Events are sent where they must, not every second."""
    monkeypatch.setattr("jobs.events.shared_events._EVERY", 3600.0)
    shop.control = {"topic": f"control-{uuid.uuid4().hex[:8]}", "time_limit_seconds": 300}
    return str(shop.control["topic"])


def expected(table: str, **names: Sequence[int]) -> Rows:
    return [{"id": one, "name": f"{text} of {table}", "at": one} for text, ids in names.items() for one in ids]


def test_members_bring_no_rows_here(shop: Shop) -> None:
    shop.make("a", "b")
    shop.write(range(200), "".join(map(incompressible, range(4))))
    with received() as landing_and_merging:
        assert shop.advance() == {"a": 200, "b": 200}
    check_no_rows(landing_and_merging)


def test_one_job_merges_what_one_task_can_and_others_go_alone(shop: Shop) -> None:
    shop.make("a", "b", "c", "d", "log", "ordered")
    shop.overrides = {
        shop.topics["log"]: {"tables": {"mode": "append"}, "changes": {"key": None}},
        shop.topics["ordered"]: {"changes": {"order_by": "at"}},
    }
    shop.write([1, 2], "first")

    assert shop.advance() == dict.fromkeys(shop.topics, 2)

    assert shop.jobs == [5], "all but the one that names an order"
    shop.write([2, 3], "second")
    assert shop.advance() == dict.fromkeys(shop.topics, 2)
    assert shop.jobs == [5, 5]
    for table in ("a", "b", "c", "d", "ordered"):
        assert shop.rows(table) == expected(table, first=[1], second=[2, 3]), table
    assert len(shop.rows("log")) == 4
    assert shop.advance() == {}, "nothing is new"
    shop.write([3], "third", "b")
    assert shop.advance() == {"b": 1}
    assert shop.rows("b") == expected("b", first=[1], second=[2], third=[3])


def test_topic_that_appears_later_begins_at_its_first_record_without_the_data_folder_too(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.start = "latest"
    shop.make("b")
    shop.write([1], "before")
    shop.advance()
    shop.make("a")
    shop.write([2], "after")
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path))
    assert shop.advance() == {"a": 1, "b": 1}
    assert (shop.rows("a"), shop.rows("b")) == (expected("a", after=[2]), expected("b", after=[2]))


def test_table_that_cannot_be_read_fails_alone_and_goes_on_when_it_can(shop: Shop) -> None:
    shop.make("a", "b", "c")
    shop.write([1], "first")
    shop.advance()
    shop.write([1, 2], "second")
    with _hidden_files(shop, "b"):
        found = shop.advance()
    problem = str(found.pop("b"))
    assert found == {"a": 2, "c": 2}
    assert f"{shop.name}.b" in problem
    assert shop.rows("a") == expected("a", second=[1, 2])
    assert shop.jobs[:2] == [3, 3]
    assert sum(shop.jobs[2:]) in (3, 5), "halves, until the one that fails is alone"

    assert shop.advance() == {"b": 2}
    assert shop.rows("b") == expected("b", second=[1, 2])


@contextmanager
def _hidden_files(shop: Shop, table: str) -> Iterator[None]:
    """The table's data files are elsewhere meanwhile."""
    place = catalog(shop.connections).require(f"{shop.name}.{table}").location().removeprefix("file://")
    data, elsewhere = Path(place) / "data", Path(place) / "elsewhere"
    data.rename(elsewhere)
    data.mkdir()
    yield
    for file in data.iterdir():  # what was written meanwhile
        file.rename(elsewhere / file.name)
    data.rmdir()
    elsewhere.rename(data)


def test_events_of_all_topics_are_in_few_transactions(shop: Shop, control: str) -> None:
    shop.make("a", "b", "c", "d")
    for text in ("first", "second"):
        shop.write([1], text)
        shop.advance()
        assert shop.transactions == [4, 8, 8], "requests; responses and ready; tables and complete"
        shop.transactions.clear()
    assert len(events(shop.connections, control)) == 4 * 5 * 2
    _check_published(shop, control)


def test_what_was_not_published_is_published_with_the_next_batch(
    shop: Shop, control: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shop.make("a", "b")
    with monkeypatch.context() as broken:
        broken.setattr("jobs.events.role.encode", lambda event: event.missing)
        shop.write([1], "first")
        assert shop.advance() == {"a": 1, "b": 1}, "events stop no data"
    assert len([line for line in caplog.messages if "commit events could not be published" in line]) == 2
    shop.write([1], "second")
    shop.advance()
    _check_published(shop, control)


def test_what_a_dead_run_has_not_published_is_published_without_a_batch(
    shop: Shop, control: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.make("a", "b")
    shop.write([1], "first")
    shop.advance()
    with monkeypatch.context() as broken:
        broken.setattr("jobs.events.role.encode", lambda event: event.missing)
        shop.write([1], "second", "b")
        shop.advance()
    shop.transactions.clear()
    shop.advance()
    assert shop.transactions == [3, 2], "request, response and ready; table and complete, all of one topic"
    _check_published(shop, control)
    shop.transactions.clear()
    shop.advance()
    assert shop.transactions == [], "nothing is opened where nothing is due"


def test_continuous_run_publishes_also_after_another_run_has_published(
    shop: Shop, control: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop.make("a", "b")
    continuous, by_hand = shop.members, shop.members
    for text, run in (("first", continuous), ("second", by_hand), ("third", continuous)):
        shop.write([1], text)
        assert shop.advance(run) == {"a": 1, "b": 1}
    assert [line for line in caplog.messages if "could not be published" in line] == []
    _check_published(shop, control)


def test_without_events_the_group_follows_all_topics(shop: Shop) -> None:
    shop.make("a", "b")
    shop.write([1, 2], "first")
    shop.advance()
    shop.write([3], "second", "b")
    shop.advance()
    offsets = {TopicPartition(shop.topics["a"], 0): 2, TopicPartition(shop.topics["b"], 0): 3}
    assert shop.transactions == []
    assert (
        group_offsets(cluster(shop.connections), f"batchmerge-{shop.name}", [TopicPartition(*p) for p in offsets])
        == offsets
    )


def _check_published(shop: Shop, control: str) -> None:
    published, every, kafka = events(shop.connections, control), shop.members, cluster(shop.connections)
    ends = dict[TopicPartition, int]()
    for member in every.known():
        pipeline = every.open(member)
        check_all_published(pipeline, published)
        state = pipeline.intermediate.committed()
        assert state
        ends |= state.offsets
    for group in ("", "/landing", "/tables-0"):
        assert settled_offsets(kafka, f"batchmerge-{shop.name}{group}", ends) == ends


def test_an_unmerged_table_is_looked_at_once_and_kafka_is_asked_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for the check of its age (`freshness`)."""
    shop.make("a", "b")
    shop.write([1], "first")
    shop.advance()
    every, looked, asked = shop.members, list[str](), list[int]()

    def committed(table: IcebergDestination) -> CommittedState | None:
        looked.append(table.table.table)
        return read(table)

    def topics(kafka: KafkaCluster, names: list[str]) -> tuple[dict[str, TopicState], dict[str, BatchmergeError]]:
        asked.append(len(names))
        return ask(kafka, names)

    read, ask = IcebergDestination.committed, states_of
    monkeypatch.setattr(IcebergDestination, "committed", committed)
    monkeypatch.setattr(known_members, "states_of", topics)
    key = table_key(every.spec.tables[0])

    def step() -> tuple[list[str], dg.AssetCheckResult]:
        looked.clear()
        asked.clear()
        due, seen, problems = behind(every, 0, every.known(), CircuitBreaker())
        assert problems == {}
        ends = EndsByMember.now(every, due)
        nothing: Any = None
        merged = [MergedMember(m.key, m.spec.tables[0], nothing, [], {}) for m in due]
        with dg.DagsterInstance.ephemeral() as instance:
            results = table_results_of_members(instance, every, key, 0, merged, ends, seen, CircuitBreaker(), problems)
        (age,) = [one for one in results if one.check_name == checks.CAUGHT_UP]
        return [member.key for member in due], age

    due, age = step()
    assert (due, age.passed, age.metadata["looked at"].value) == ([], True, 2)
    assert (sorted(looked), asked) == ([f"{shop.name}.a", f"{shop.name}.b"], [2])

    shop.write([2], "second", "a")
    assert not [o.problem for o in land(every, every.look(), 0) if o.problem]
    due, age = step()
    assert (due, age.passed) == ([shop.topics["a"]], True)
    assert (sorted(looked), asked) == ([f"{shop.name}.a", f"{shop.name}.b"], [2])
