"""One pipeline file for many topics (`for_each`), through Dagster, against a real broker, Spark and ClickHouse."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from jobs.connections_file import load_connections
from jobs.spec.members import member_name
from jobs.spec.pipeline import PipelineSpec
from orchestration import pauses
from orchestration.cli.job_runs import RunResult, run_job
from orchestration.components import KafkaPipeline
from orchestration.definitions import with_shared
from orchestration.metrics import measures
from orchestration.metrics.assets import pipeline_assets
from orchestration.metrics.events import EventTotals
from orchestration.metrics.measures import Sample
from orchestration.metrics.tables import table_samples
from orchestration.names import landing_key, table_key
from orchestration.open_lineage.sender import TimeSpent
from orchestration.sensors.lag import look_at
from orchestration.status.dagster_state import DagsterHere, used_instance
from orchestration.status.pipelines import pipeline_status
from orchestration.status.values import Status
from resources.connections import Connections, IcebergConnection, KafkaConnection
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_offsets
from resources.topic_partition import TopicPartition
from tests.kit import specs
from tests.kit.clickhouse import select
from tests.kit.records import Record, bootstrap, produce
from tests.kit.web import Handler, serving
from tests.orchestration.launching import events

Topic = Callable[..., str]
Rows = list[dict[str, Any]]


class Shop:
    """A pipeline of all topics `<prefix>.<table>-…`, into Iceberg and ClickHouse tables of the same names."""

    def __init__(self, connections: Connections, topic: Topic) -> None:
        self.connections, self._topic = connections, topic
        self.name = f"shop{uuid.uuid4().hex[:6]}"
        self.topics: dict[str, str] = {}
        self.overrides: dict[str, Any] = {}
        self.events = False

    def make(self, table: str) -> str:
        self.topics[table] = self._topic(f"{self.name}.{table}")
        return self.topics[table]

    def write(self, table: str, *values: dict[str, Any] | str) -> None:
        produce(bootstrap(self.connections), self.topics[table], [Record(0, 0, value) for value in values])

    @property
    def spec(self) -> PipelineSpec:
        return PipelineSpec.model_validate(self.document)

    @property
    def document(self) -> dict[str, Any]:
        columns = {"id": "long", "name": "string"}
        tables = [
            {"kind": kind, "table": f"{self.name}.{{table}}", "mode": "upsert"} for kind in ("iceberg", "clickhouse")
        ]
        return {
            "source": {
                "pattern": rf"{self.name}\.(?P<table>.+)-[0-9a-f]{{8}}",
                "for_each": "topic",
                "value": {"format": "json", "columns": columns},
            },
            "changes": {"key": {"columns": ["id"], "source": "value"}, "order_by": "arrival"},
            "tables": tables,
            "overrides": self.overrides,
            "retry": {"max_retries": 0},
            "control": {"enabled": self.events},
        }

    @property
    def definitions(self) -> dg.Definitions:
        return with_shared(KafkaPipeline(self.name, self.spec).definitions())

    def run(self, instance: dg.DagsterInstance, **config: object) -> RunResult:
        return run_job(instance, self.definitions, self.name, config)

    def key(self, kind: str, table: str) -> dg.AssetKey:
        return dg.AssetKey([kind, self.name, table])

    def iceberg(self, table: str) -> Rows:
        catalog = IcebergCatalog("lake", self.connections.get("lake", IcebergConnection))
        found: Rows = catalog.require(f"{self.name}.{table}").scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: [*row.values()])

    def clickhouse(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        found = select(self.connections, f"{self.name}.{table}", columns)
        return sorted(tuple(row[column] for column in columns) for row in found)

    def status(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Status:
        specs.write(folder / "defs", self.name, self.document)
        monkeypatch.setattr("orchestration.files.FOLDER", folder / "defs")
        with used_instance() as instance:
            return pipeline_status(DagsterHere(instance))


class Events(Shop):
    """A pipeline of one topic, whose records name their tables."""

    @property
    def document(self) -> dict[str, Any]:
        tables = [
            {"kind": kind, "table": f"{self.name}.{{route_by}}", "mode": "upsert"} for kind in ("iceberg", "clickhouse")
        ]
        return {
            "source": {
                "topics": [self.topics["all"]],
                "value": {"format": "json", "columns": {"id": "long", "name": "string"}},
            },
            "changes": {"key": {"columns": ["id"], "source": "value"}, "order_by": "arrival"},
            "route_by": "name",
            "new_tables": {},
            "tables": tables,
            "retry": {"max_retries": 0},
        }


@pytest.fixture
def shop(clickhouse: Path, topic: Topic) -> Shop:
    return Shop(load_connections(clickhouse / "connections.yaml"), topic)


def test_topics_of_different_schema_one_that_fails_and_one_that_appears(
    shop: Shop, instance: dg.DagsterInstance, lineage: list[dict[str, Any]]
) -> None:
    lines = shop.make("lines")
    broken = shop.make("broken")
    shop.make("orders")
    shop.overrides = {
        lines: {
            "source": {"value": {"columns": {"order": "long", "line": "int", "price": "double"}}},
            "changes": {"key": {"columns": ["order", "line"]}},
        },
        broken: {"on_bad_record": "fail"},
    }
    shop.write("orders", {"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 1, "name": "c"})
    shop.write("lines", {"order": 1, "line": 1, "price": 2.5})
    shop.write("broken", "{")

    first = shop.run(instance)

    assert [step.problem is None for step in first.steps] == [True, False, False]
    assert "1 topic failed, the others are done" in str(first.tables[0].problem)
    assert broken in str(first.tables[0].problem)
    assert shop.iceberg("orders") == [{"id": 1, "name": "c"}, {"id": 2, "name": "b"}]
    assert shop.clickhouse("orders", "id", "name") == [(1, "c"), (2, "b")]
    assert shop.iceberg("lines") == [{"order": 1, "line": 1, "price": 2.5}]
    assert {row["topic"]: row["read"] for row in first.landing.metadata["topics"]} == {
        shop.topics["orders"]: 3,
        lines: 1,
    }
    jobs = {event["job"]["name"] for event in lineage if event["eventType"] == "COMPLETE"}
    orders = member_name(shop.name, shop.topics["orders"])
    assert {f"{orders}.landing", f"{orders}.iceberg {shop.name}.orders"} <= jobs

    shop.make("stock")
    shop.write("stock", {"id": 7, "name": "new"})
    shop.write("lines", {"order": 1, "line": 2, "price": 1.0})
    loaded_before = shop.definitions
    shop.overrides = {**shop.overrides, broken: {"leave_out": True}}
    second = run_job(instance, loaded_before, shop.name, {"topics": [shop.topics["stock"], lines]})

    assert second.success
    assert shop.topics["stock"] in second.landing.metadata["new topics"]
    assert shop.clickhouse("stock", "id", "name") == [(7, "new")]
    assert len(shop.iceberg("lines")) == 2
    # Its asset is not there before a reload, and then has its history.
    assert shop.key("iceberg", "stock") not in loaded_before.resolve_asset_graph().get_all_asset_keys()
    assert shop.key("iceberg", "stock") in shop.definitions.resolve_asset_graph().get_all_asset_keys()
    made = instance.get_latest_materialization_event(shop.key("iceberg", "stock"))
    assert made is not None
    assert made.run_id == second.run_id

    third = shop.run(instance)

    assert third.success
    assert [step.metadata["batches"] for step in third.steps] == [0, 0, 0]
    names = {event.asset_key for event in events(instance, third, dg.DagsterEventType.ASSET_MATERIALIZATION)}
    assert shop.key("iceberg", "orders") not in names


def test_a_silent_receiver_of_lineage_delays_many_topics_once(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Silent(Handler):
        def do_POST(self) -> None:
            asked.append(self.path)
            time.sleep(60)

    monkeypatch.setattr("orchestration.open_lineage.sender._SPENT", TimeSpent())
    monkeypatch.setattr("orchestration.open_lineage.sender._MINUTE", 600.0)  # longer than the run
    for table in ("a", "b", "c"):
        shop.make(table)
        shop.write(table, {"id": 1, "name": table})
    with serving(Silent) as address:
        monkeypatch.setenv("OPENLINEAGE_URL", address)
        assert shop.run(instance).success
    assert len(asked) == 2, "one event, tried twice"
    assert [shop.iceberg(table) for table in ("a", "b", "c")] == [[{"id": 1, "name": n}] for n in ("a", "b", "c")]


def successes(instance: dg.DagsterInstance) -> list[Sample]:
    """When each table got its newest batch, for Prometheus."""
    return [s for s in EventTotals(instance).samples(pipeline_assets()) if s.measure == measures.LAST_SUCCESS]


def test_a_members_batches_are_its_own_and_one_group_shows_all(
    shop: Shop, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.events = True
    columns = {"id": "long", "name": "string", "pieces": "int"}
    shop.overrides = {shop.make("a"): {"source": {"value": {"columns": columns}}}}
    shop.make("b")
    shop.write("a", {"id": 1, "name": "a"})
    shop.write("b", {"id": 1, "name": "b"})
    shop.run(instance)
    fields = dg.AssetCheckKey(landing_key(shop.name), "fields_declared")
    stale = dg.AssetCheckKey(table_key(shop.spec.tables[0]), "no_stale_keys")

    def passes(check: dg.AssetCheckKey) -> bool:
        # The newest of this run, since a check is written down as planned before it is made.
        record = instance.get_latest_asset_check_evaluation_record(check)
        assert record
        assert record.evaluation
        return record.evaluation.passed

    assert passes(fields)
    assert passes(stale)
    shop.write("a", {"id": 2, "name": "a", "extra": 1}, {"id": 1, "name": "a", "pieces": "many"})
    left_out = shop.run(instance)
    assert left_out.landing.metadata["unknown fields"] == {shop.topics["a"]: {"extra": 1}}
    messages = [entry.user_message for entry in instance.all_logs(left_out.run_id)]
    assert [text for text in messages if "no column takes" in text and "extra (1)" in text]
    assert not passes(fields)
    assert not passes(stale)
    shop.write("b", {"id": 1, "name": "b"})
    assert shop.run(instance).success
    assert not passes(fields), "nothing of the topic was landed now, and its field is still left out"
    assert not passes(stale), "nothing was merged into the table now, and its row is still the older one"
    shop.write("a", {"id": 1, "name": "corrected"})
    assert shop.run(instance).success
    assert passes(stale)

    catalog = IcebergCatalog("lake", shop.connections.get("lake", IcebergConnection))
    batches = {}
    for table, topic in shop.topics.items():
        landed = catalog.require(f"landing.{member_name(shop.name, topic)}_tmp").scan().to_arrow()
        batches[table] = sorted(set(landed["batchNumber"].to_pylist()))
    assert batches == {"a": [1, 2, 3], "b": [1, 2]}
    kafka = KafkaCluster("kafka", shop.connections.get("kafka", KafkaConnection))
    ends = {TopicPartition(shop.topics["a"], 0): 4, TopicPartition(shop.topics["b"], 0): 2}
    assert group_offsets(kafka, f"batchmerge-{shop.name}", ends) == ends
    waits = look_at(shop.name, shop.spec)
    assert (waits.landing, waits.tables) == (0, 0)

    pauses.pause(instance, shop.name, shop.spec, shop.spec.tables[0], "anna")
    status = shop.status(tmp_path, monkeypatch)
    samples = [(s.measure, s.labels) for s in table_samples(status)]
    assert len(samples) == len(set(samples)), "no two have the same labels"
    (found,) = status.pipelines
    assert {t.name: "paused by anna" in str(t.paused) for t in found.tables if not t.is_landing} == {
        f"{kind} {shop.name}.{table}": kind == "iceberg" for kind in ("iceberg", "clickhouse") for table in "ab"
    }
    labelled = {s.labels[1] for s in successes(instance) if s.labels[0] == shop.name}
    assert labelled == {labels[1] for measure, labels in samples if measure == measures.UP}


def test_backfill_before_a_topics_first_batch_reads_kafka(shop: Shop, instance: dg.DagsterInstance) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    long_ago = now - timedelta(hours=5)
    shop.overrides = {shop.make("late"): {"source": {"start": "latest"}}}
    shop.make("other")
    old = [Record(0, 0, {"id": n, "name": "old"}) for n in (1, 2)]
    produce(bootstrap(shop.connections), shop.topics["late"], old, timestamp=int(long_ago.timestamp() * 1000))
    shop.write("other", {"id": 1, "name": "other"})
    shop.run(instance)
    shop.write("late", {"id": 2, "name": "new"})
    assert shop.run(instance).success
    assert shop.iceberg("late") == [{"id": 2, "name": "new"}]

    hours = (f"{long_ago:%Y-%m-%d-%H:00}", f"{long_ago:%Y-%m-%d-%H:00}")
    done = run_job(instance, shop.definitions, shop.name, {}, hours=hours, tags={"dagster/backfill": "b"})

    assert done.success
    assert ([row["topic"] for row in done.landing.metadata["topics"]], done.landing.metadata["read"]) == (
        [shop.topics["late"]],
        2,
    )
    assert shop.iceberg("late") == [{"id": 1, "name": "old"}, {"id": 2, "name": "new"}]
    assert shop.clickhouse("late", "id", "name") == [(1, "old"), (2, "new")]
    assert shop.iceberg("other") == [{"id": 1, "name": "other"}]


def test_tables_that_records_name_show_up_after_a_reload(
    clickhouse: Path, topic: Topic, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Events(load_connections(clickhouse / "connections.yaml"), topic)
    shop.make("all")
    shop.write("all", {"id": 1, "name": "login"}, {"id": 2, "name": "Sale"}, {"id": 3, "name": "no table"})

    first = shop.run(instance)

    assert first.success
    assert first.landing.metadata["quarantined"] == 1
    assert {row["table"] for row in first.tables[0].metadata["tables"]} == {f"{shop.name}.login", f"{shop.name}.sale"}
    assert shop.iceberg("sale") == [{"id": 2, "name": "Sale"}]
    loaded_before = shop.definitions
    shop.write("all", {"id": 4, "name": "refund"})
    second = run_job(instance, loaded_before, shop.name, {})
    assert second.success
    assert "refund" in second.landing.metadata["new tables"]
    assert shop.clickhouse("refund", "id") == [(4,)]
    new = shop.key("clickhouse", "refund")
    assert new not in loaded_before.resolve_asset_graph().get_all_asset_keys()
    assert new in shop.definitions.resolve_asset_graph().get_all_asset_keys()
    made = instance.get_latest_materialization_event(new)
    assert made is not None
    assert made.run_id == second.run_id
    assert "seconds" in second.tables[0].metadata
    assert [name for name in second.tables[0].metadata if name.startswith("seconds ")]
    pauses.pause(instance, shop.name, shop.spec, shop.spec.tables[1], "anna")
    status = shop.status(tmp_path, monkeypatch)
    (found,) = status.pipelines
    assert {t.name for t in found.tables if t.paused} == {
        f"clickhouse {shop.name}.{name}" for name in ("login", "sale", "refund")
    }
    counted = {s.labels[1] for s in successes(instance) if s.labels[0] == shop.name}
    assert counted == {s.labels[1] for s in table_samples(status) if s.measure == measures.UP}
    pauses.resume(instance, shop.name, shop.spec, None, "anna")
    # All tables are at the newest batch, and so is the consumer group.
    waits = look_at(shop.name, shop.spec)
    assert (waits.landing, waits.tables) == (0, 0)
    for job in ("verify", "maintenance"):
        done = shop.definitions.resolve_job_def(f"{shop.name}_{job}").execute_in_process(instance=instance)
        assert all(check.passed for check in done.get_asset_check_evaluations())
