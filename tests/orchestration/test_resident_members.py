"""A run that stays, of a pipeline of many topics (`interval` with `for_each`), on a real daemon."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

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


def test_every_topic_is_committed_and_one_that_fails_stops_no_other(
    connections: Connections, stack: Path, topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"shop{uuid.uuid4().hex[:6]}"
    topics = {table: topic(f"{name}.{table}") for table in ("goods", "orders", "broken")}
    table = {"kind": "iceberg", "table": f"{name}.{{table}}", "mode": "upsert"}
    document = {
        "source": {
            "pattern": rf"{name}\.(?P<table>.+)-[0-9a-f]{{8}}",
            "for_each": "topic",
            "value": {"format": "json", "columns": {"id": "long", "name": "string"}},
        },
        "changes": {"key": {"columns": ["id"], "source": "value"}, "order_by": "arrival"},
        "tables": [table],
        "on_bad_record": "fail",
        "interval": "1s",
    }
    specs.write(tmp_path / "pipelines", name, document)
    home, log = tmp_path / "dagster", tmp_path / "log"
    home.mkdir()
    (home / "dagster.yaml").write_text(SETTINGS.read_text())
    for variable, value in {"DAGSTER_HOME": home, "BATCHMERGE_PIPELINES": tmp_path / "pipelines"}.items():
        monkeypatch.setenv(variable, str(value))
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(stack / "connections.yaml"))
    lake = connections.opened("lake", IcebergConnection, IcebergCatalog)
    sent: dict[str, dict[int, str]] = {}

    def send(to: str, key: int, text: str) -> None:
        sent.setdefault(to, {})[key] = text
        _produce(connections, topics[to], json.dumps({"id": key, "name": text}))

    def are_there() -> bool:
        return all(_rows(lake, f"{name}.{to}") == rows for to, rows in sent.items())

    send("goods", 1, "a")
    send("orders", 1, "x")
    _produce(connections, topics["broken"], "{no json")
    command = [sys.executable, "-m", "dagster", "dev", "-m", "orchestration.definitions", "--host", "127.0.0.1"]
    with dg.DagsterInstance.from_config(str(home)) as instance, started(command, free_port(()), {}, log):
        until(are_there, log)
        for n in range(3):
            send("goods", n, f"again {n}")
            until(are_there, log)
        topics["late"] = topic(f"{name}.late")
        send("late", 7, "new")
        until(are_there, log)
        runs = instance.get_runs(dg.RunsFilter(tags={RESIDENT_TAG: name}))
        assert [run.status for run in runs] == [dg.DagsterRunStatus.STARTED], "one run, which stays"

        def told(key: dg.AssetKey) -> dg.AssetMaterialization | None:
            found = instance.fetch_materializations(key, limit=1).records
            return found[0].asset_materialization if found else None

        until(lambda: told(landing_key(name)) and told(dg.AssetKey(["iceberg", name, "goods"])), log)
        landing = told(landing_key(name))
        assert landing
        failed = landing.metadata["failed topics"].value
        assert isinstance(failed, dict)
        assert list(failed) == [topics["broken"]]
    assert lake.load(f"{name}.broken") is None or _rows(lake, f"{name}.broken") == {}


def _produce(connections: Connections, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    producer.produce(topic, value, key=b"k")
    assert producer.flush(30) == 0


def _rows(lake: IcebergCatalog, name: str) -> dict[int, str]:
    table = lake.load(name)
    if table is None or table.current_snapshot() is None:
        return {}
    return {row["id"]: row["name"] for row in table.scan().to_arrow().to_pylist()}
