"""Flows into BigQuery, and what their tables hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from google.cloud.bigquery import LoadJob

from jobs.connections_file import load_connections
from jobs.destinations.bigquery.destination import BigQueryDestination
from resources.bigquery import BigQuery
from resources.bigquery_labels import label
from resources.connections import BigQueryConnection, Connections
from resources.local import stack as local_stack
from tests.kit.flow import Flow
from tests.kit.model import Row


def bigquery_flow(topic: str, modes: list[str], max_records: int = 1000, **options: object) -> Flow:
    """A flow with one BigQuery table a mode; `options` are those of each table."""
    return Flow(topic, modes, max_records, table_options=options, kind="bigquery")


def service(connections: Connections) -> BigQuery:
    return BigQuery("bigquery", connections.get("bigquery", BigQueryConnection))


def drop_tables(connections: Connections) -> None:
    """Drops the tables of all tests so far: with eighty tables the emulator takes twice the time for each statement."""
    found = service(connections)
    found.client.delete_dataset(f"{found.connection.project}.tests", delete_contents=True, not_found_ok=True)


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


def loads(connections: Connections, flow: Flow) -> list[LoadJob]:
    """The load jobs of a flow that did their work."""
    found = service(connections).client.list_jobs(state_filter="done", max_results=1000)
    wanted = {"batchmerge-kind": "load", "batchmerge-pipeline": label(flow.name)}
    return [cast(LoadJob, job) for job in found if wanted.items() <= job.labels.items() and not job.error_result]


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
