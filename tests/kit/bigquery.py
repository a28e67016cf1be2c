"""Flows into BigQuery, and what their tables hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.destinations.bigquery.destination import BigQueryDestination
from resources.bigquery import BigQuery
from resources.connections import BigQueryConnection, Connections, load_connections
from resources.local import stack as local_stack
from tests.kit.flow import Flow
from tests.kit.model import Row


def bigquery_flow(topic: str, modes: list[str], max_records: int = 1000, **options: object) -> Flow:
    """A flow with one BigQuery table a mode; `options` are those of each table."""
    flow = Flow(topic, modes, max_records)
    tables = [{"kind": "bigquery", "table": flow.table(m), "mode": m, **options} for m in modes]
    flow.overrides["tables"] = tables
    return flow


def service(connections: Connections) -> BigQuery:
    return BigQuery("bigquery", connections.get("bigquery", BigQueryConnection))


@contextmanager
def alone(home: Path) -> Iterator[BigQuery]:
    """An emulator without Kafka and Spark, in a data folder of its own; skips where it cannot run."""
    needed = next(one for one in local_stack.SERVICES if one.name == "bigquery")
    if reason := needed.unavailable():
        pytest.skip(reason)
    local_stack.up(home, ["bigquery"], print)
    try:
        yield service(load_connections(home / "connections.yaml"))
    finally:
        local_stack.down(home, print)


def select(connections: Connections, text: str) -> list[dict[str, object]]:
    return [dict(row) for row in service(connections).read(text, {}, "test")]


def rows(connections: Connections, table: str) -> list[Row]:
    """What a table of the usual records holds, sorted."""
    found = service(connections).read(f"SELECT id, name, amount FROM `{table}`", {}, "test")
    return sorted((row["id"], row["name"], row["amount"]) for row in found)


def destination(flow: Flow, mode: str, connections: Connections) -> BigQueryDestination:
    found = flow.pipeline(connections).destination(flow.table(mode))
    assert isinstance(found, BigQueryDestination)
    return found
