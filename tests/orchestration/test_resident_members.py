"""A run that stays, of a pipeline with many tables (`interval` with `for_each`, `new_tables`), on a real daemon."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from confluent_kafka import Producer

from orchestration.cli.instance import SETTINGS
from orchestration.names import RESIDENT_TAG, landing_key
from resources.connections import Connections, IcebergConnection
from resources.iceberg import IcebergCatalog
from resources.local.ports import free_port
from tests.kit import specs
from tests.kit.dagster_dev import started
from tests.kit.records import bootstrap
from tests.kit.waiting import until


@dataclass
class Stays:
    """A pipeline that commits every second, under a daemon."""

    connections: Connections
    folder: Path
    name: str = field(default_factory=lambda: f"shop{uuid.uuid4().hex[:6]}")

    @contextmanager
    def daemon(self, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
        specs.write(self.folder / "pipelines", self.name, {**document, "interval": "1s"})
        home = self.folder / "dagster"
        home.mkdir()
        (home / "dagster.yaml").write_text(SETTINGS.read_text())
        for variable, value in {"DAGSTER_HOME": home, "BATCHMERGE_PIPELINES": self.folder / "pipelines"}.items():
            monkeypatch.setenv(variable, str(value))
        command = [sys.executable, "-m", "dagster", "dev", "-m", "orchestration.definitions", "--host", "127.0.0.1"]
        with dg.DagsterInstance.from_config(str(home)) as instance, started(command, free_port(()), {}, self.log):
            yield instance

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def until_there(self, tables: dict[str, dict[int, str]]) -> None:
        """By the table's name its rows."""
        lake = self.connections.opened("lake", IcebergConnection, IcebergCatalog)
        until(lambda: all(_rows(lake, f"{self.name}.{table}") == rows for table, rows in tables.items()), self.log)

    def produce(self, topic: str, value: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap(self.connections)})
        producer.produce(topic, value, key=b"k")
        assert producer.flush(30) == 0


@pytest.fixture
def stays(connections: Connections, stack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stays:
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(stack / "connections.yaml"))
    return Stays(connections, tmp_path)


def test_every_topic_is_committed_and_one_that_fails_stops_no_other(
    stays: Stays, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
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
    send("orders", 1, "x")
    stays.produce(topics["broken"], "{no json")
    with stays.daemon(document, monkeypatch) as instance:
        stays.until_there(sent)
        for n in range(3):
            send("goods", n, f"again {n}")
            stays.until_there(sent)
        topics["late"] = topic(f"{name}.late")
        send("late", 7, "new")
        stays.until_there(sent)
        runs = instance.get_runs(dg.RunsFilter(tags={RESIDENT_TAG: name}))
        assert [run.status for run in runs] == [dg.DagsterRunStatus.STARTED], "one run, which stays"

        def told(key: dg.AssetKey) -> dg.AssetMaterialization | None:
            found = instance.fetch_materializations(key, limit=1).records
            return found[0].asset_materialization if found else None

        until(lambda: told(landing_key(name)) and told(dg.AssetKey(["iceberg", name, "goods"])), stays.log)
        landing = told(landing_key(name))
        assert landing
        failed = landing.metadata["failed topics"].value
        assert isinstance(failed, dict)
        assert list(failed) == [topics["broken"]]
    stays.until_there({"broken": {}})


def test_tables_that_records_name_are_committed_too(
    stays: Stays, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events, sent = topic(), dict[str, dict[int, str]]()
    columns = {"id": "long", "kind": "string", "name": "string"}
    document = {
        "source": {"topics": [events], "value": {"format": "json", "columns": columns}},
        "route_by": "kind",
        "new_tables": {},
        "tables": [{"kind": "iceberg", "table": f"{stays.name}.{{route_by}}", "mode": "append"}],
    }
    with stays.daemon(document, monkeypatch):
        for key, kind in enumerate(["login", "order", "login", "late"]):
            sent.setdefault(kind, {})[key] = f"{kind} {key}"
            stays.produce(events, json.dumps({"id": key, "kind": kind, "name": f"{kind} {key}"}))
            stays.until_there(sent)


def _rows(lake: IcebergCatalog, name: str) -> dict[int, str]:
    table = lake.load(name)
    if table is None or table.current_snapshot() is None:
        return {}
    return {row["id"]: row["name"] for row in table.scan().to_arrow().to_pylist()}
