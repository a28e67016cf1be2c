"""A continuous run, of a pipeline with many tables (`interval` with `for_each`, `new_tables`), on a real daemon."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer

from jobs.spec.members import member_name
from orchestration.components.member_checks import wrong_before
from orchestration.names import landing_key
from resources.connections import Connections, IcebergConnection
from resources.iceberg import IcebergCatalog
from tests.kit.records import bootstrap
from tests.kit.resident import STATUS, Resident, resident
from tests.kit.waiting import until


@dataclass
class Stays:
    """A pipeline that commits every second, under a daemon."""

    connections: Connections
    file: Path
    folder: Path
    name: str = field(default_factory=lambda: f"shop{uuid.uuid4().hex[:6]}")

    def daemon(self, document: dict[str, Any]) -> AbstractContextManager[Resident]:
        return resident(self.folder, self.file, self.name, {**document, "interval": "1s"})

    def until_there(self, tables: dict[str, dict[int, str]]) -> None:
        """By the table's name its rows."""
        lake = self.connections.opened("lake", IcebergConnection, IcebergCatalog)
        wanted = {f"{self.name}.{table}": rows for table, rows in tables.items()}
        until(lambda: all(_rows(lake, name) == rows for name, rows in wanted.items()), self.folder / "log")

    def produce(self, topic: str, value: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap(self.connections)})
        producer.produce(topic, value, key=b"k")
        assert producer.flush(30) == 0


@pytest.fixture
def stays(connections: Connections, stack: Path, tmp_path: Path) -> Stays:
    return Stays(connections, stack / "connections.yaml", tmp_path)


def test_every_topic_is_committed_and_one_that_fails_stops_no_other(
    stays: Stays, topic: Callable[..., str], lineage: list[dict[str, Any]]
) -> None:
    name = stays.name
    topics = {table: topic(f"{name}.{table}") for table in ("goods", "orders", "broken")}
    document = {
        "source": {
            "pattern": rf"{name}\.(?P<table>.+)-[0-9a-f]{{8}}",
            "for_each": "topic",
            "value": {"format": "json", "columns": {"id": "long", "name": "string"}},
        },
        "changes": {"key": {"columns": ["id"], "source": "value"}, "order_by": "arrival"},
        "tables": [{"kind": "iceberg", "table": f"{name}.{{table}}", "mode": "upsert"}],
        "on_bad_record": "fail",
    }
    sent: dict[str, dict[int, str]] = {}

    def send(to: str, key: int, text: str) -> None:
        sent.setdefault(to, {})[key] = text
        stays.produce(topics[to], json.dumps({"id": key, "name": text}))

    send("goods", 1, "a")
    sent["orders"] = {1: "x"}
    stays.produce(topics["orders"], json.dumps({"id": 1, "name": "x", "extra": 1}))
    stays.produce(topics["broken"], "{no json")
    with stays.daemon(document) as daemon:
        stays.until_there(sent)
        for n in range(3):
            send("goods", n, f"again {n}")
            stays.until_there(sent)
        topics["late"] = topic(f"{name}.late")
        send("late", 7, "new")
        stays.until_there(sent)
        assert [run.status for run in daemon.runs()] == [STATUS.STARTED], "one run, which stays"
        daemon.until(lambda: daemon.told(landing_key(name)) and daemon.told(dg.AssetKey(["iceberg", name, "goods"])))
        landing = daemon.told(landing_key(name))
        assert landing
        failed = landing.metadata["failed topics"].value
        assert isinstance(failed, dict)
        assert list(failed) == [topics["broken"]]
        shown = [m.metadata.get("unknown fields") for m in daemon.all_told(landing_key(name))]
        assert [one.value for one in shown if one] == [{topics["orders"]: {"extra": 1}}]
        check = dg.AssetCheckKey(landing_key(name), "fields_declared")
        daemon.until(lambda: wrong_before(daemon.instance, check) == {topics["orders"]})
        log = [entry.user_message for entry in daemon.instance.all_logs(daemon.runs()[0].run_id)]
        assert [text for text in log if "no column takes" in text and "extra (1)" in text]
        goods = member_name(name, topics["goods"])
        done = {event["job"]["name"] for event in lineage if event["eventType"] == "COMPLETE"}
        assert {f"{goods}.landing", f"{goods}.iceberg {name}.goods"} <= done
    stays.until_there({"broken": {}})


def test_tables_that_records_name_are_committed_too(stays: Stays, topic: Callable[..., str]) -> None:
    events, sent = topic(), dict[str, dict[int, str]]()
    columns = {"id": "long", "kind": "string", "name": "string"}
    document = {
        "source": {"topics": [events], "value": {"format": "json", "columns": columns}},
        "route_by": "kind",
        "new_tables": {},
        "tables": [{"kind": "iceberg", "table": f"{stays.name}.{{route_by}}", "mode": "append"}],
    }
    with stays.daemon(document):
        for key, kind in enumerate(["login", "order", "login", "late"]):
            sent.setdefault(kind, {})[key] = f"{kind} {key}"
            stays.produce(events, json.dumps({"id": key, "kind": kind, "name": f"{kind} {key}"}))
            stays.until_there(sent)


def _rows(lake: IcebergCatalog, name: str) -> dict[int, str]:
    table = lake.load(name)
    if table is None or table.current_snapshot() is None:
        return {}
    return {row["id"]: row["name"] for row in table.scan().to_arrow().to_pylist()}
