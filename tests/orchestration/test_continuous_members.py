"""ContinuousRun runs (`interval`), of pipelines with many tables (`for_each`, `new_tables`), on a real daemon."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from jobs.connections_file import load_connections
from jobs.spec.members import member_name
from orchestration.components.member_checks import wrong_before
from orchestration.names import landing_key
from resources.connections import Connections
from tests.kit.continuous import STATUS, ContinuousRun, continuous_runs
from tests.kit.engine import catalog
from tests.kit.records import Record, bootstrap, produce
from tests.orchestration.conftest import lineage_receiver

SHOP, EVENTS = (f"{name}{uuid.uuid4().hex[:6]}" for name in ("shop", "events"))
# In the topics of `SHOP` before the daemon runs: no column takes one of the fields, and one record cannot be read.
FIRST: Mapping[str, dict[str, object] | str] = {
    "goods": {"id": 1, "name": "a"},
    "orders": {"id": 1, "name": "x", "extra": 1},
    "broken": "{no json",
}


@dataclass(frozen=True)
class Running:
    """Two pipelines that commit every second, under one daemon.

    Attributes:
        topics: by the table of `SHOP` that gets its records; the one of `EVENTS`.
        continuous_runs: by pipeline.
        lineage: events that a receiver of OpenLineage has got.
    """

    connections: Connections
    topics: dict[str, str]
    continuous_runs: Mapping[str, ContinuousRun]
    lineage: list[dict[str, Any]]

    def send(self, to: str, value: dict[str, object]) -> None:
        produce(bootstrap(self.connections), self.topics[to], [Record(0, 1, value)])

    def until_there(self, pipeline: str, tables: dict[str, dict[int, str]]) -> None:
        """By the table's name the names of its rows, by id."""

        def is_there() -> bool:
            return all(_names(self.connections, f"{pipeline}.{table}") == names for table, names in tables.items())

        self.continuous_runs[pipeline].until(is_there)


@pytest.fixture(scope="module")
def running(
    stack: Path, module_topic: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    file, topics = stack / "connections.yaml", {EVENTS: module_topic()}
    connections = load_connections(file)
    for table, value in FIRST.items():
        topics[table] = module_topic(f"{SHOP}.{table}")
        produce(bootstrap(connections), topics[table], [Record(0, 1, value)])
    shop: dict[str, object] = {
        "source": {
            "pattern": rf"{SHOP}\.(?P<table>.+)-[0-9a-f]{{8}}",
            "for_each": "topic",
            "value": {"format": "json", "columns": {"id": "long", "name": "string"}},
        },
        "changes": {"key": {"columns": ["id"], "source": "value"}, "order_by": "arrival"},
        "tables": [{"kind": "iceberg", "table": f"{SHOP}.{{table}}", "mode": "upsert"}],
        "on_bad_record": "fail",
        "interval": "1s",
    }
    columns = {"id": "long", "kind": "string", "name": "string"}
    by_kind: dict[str, object] = {
        "source": {"topics": [topics[EVENTS]], "value": {"format": "json", "columns": columns}},
        "route_by": "kind",
        "new_tables": {},
        "tables": [{"kind": "iceberg", "table": f"{EVENTS}.{{route_by}}", "mode": "append"}],
        "interval": "1s",
    }
    folder = tmp_path_factory.mktemp("running")
    with (
        lineage_receiver() as (address, lineage),
        continuous_runs(folder, file, {SHOP: shop, EVENTS: by_kind}, OPENLINEAGE_URL=address) as found,
    ):
        yield Running(connections, topics, found, lineage)


def test_every_topic_is_committed_and_one_that_fails_stops_no_other(
    running: Running, module_topic: Callable[..., str]
) -> None:
    topics, daemon = running.topics, running.continuous_runs[SHOP]
    sent = {"goods": {1: "a"}, "orders": {1: "x"}}

    def send(to: str, key: int, text: str) -> None:
        sent.setdefault(to, {})[key] = text
        running.send(to, {"id": key, "name": text})

    running.until_there(SHOP, sent)
    for n in range(3):
        send("goods", n, f"again {n}")
        running.until_there(SHOP, sent)
    topics["late"] = module_topic(f"{SHOP}.late")
    send("late", 7, "new")
    running.until_there(SHOP, sent)
    assert [run.status for run in daemon.runs()] == [STATUS.STARTED], "one run, which goes on"
    daemon.until(lambda: daemon.materialization(landing_key(SHOP)))
    daemon.until(lambda: daemon.materialization(dg.AssetKey(["iceberg", SHOP, "goods"])))
    landing = daemon.materialization(landing_key(SHOP))
    assert landing
    failed = landing.metadata["failed topics"].value
    assert isinstance(failed, dict)
    assert list(failed) == [topics["broken"]]
    shown = [m.metadata.get("unknown fields") for m in daemon.materializations(landing_key(SHOP))]
    assert [one.value for one in shown if one] == [{topics["orders"]: {"extra": 1}}]
    check = dg.AssetCheckKey(landing_key(SHOP), "fields_declared")
    daemon.until(lambda: wrong_before(daemon.instance, check) == {topics["orders"]})
    log = [entry.user_message for entry in daemon.instance.all_logs(daemon.runs()[0].run_id)]
    assert [text for text in log if "no column takes" in text and "extra (1)" in text]
    goods = member_name(SHOP, topics["goods"])
    done = {event["job"]["name"] for event in running.lineage if event["eventType"] == "COMPLETE"}
    assert {f"{goods}.landing", f"{goods}.iceberg {SHOP}.goods"} <= done
    running.until_there(SHOP, {**sent, "broken": {}})


def test_tables_that_records_name_are_committed_too(running: Running) -> None:
    sent = dict[str, dict[int, str]]()
    for key, kind in enumerate(["login", "order", "login", "late"]):
        sent.setdefault(kind, {})[key] = f"{kind} {key}"
        running.send(EVENTS, {"id": key, "kind": kind, "name": f"{kind} {key}"})
        running.until_there(EVENTS, sent)


def _names(connections: Connections, table: str) -> dict[int, str]:
    """By id."""
    found = catalog(connections).load(table)
    if found is None or found.current_snapshot() is None:
        return {}
    return {row["id"]: row["name"] for row in found.scan().to_arrow().to_pylist()}
