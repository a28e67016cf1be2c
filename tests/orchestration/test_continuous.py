"""A continuous run (`interval`), on a real daemon: what it commits, and what becomes of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from orchestration import pauses
from orchestration.names import continuous_op, landing_key, table_key, topic_keys
from orchestration.runs.run_process import pid_of
from resources.connections import Connections
from tests.kit.connections_file import write_connections
from tests.kit.continuous import STATUS, ContinuousRun, continuous_run
from tests.kit.engine import catalog
from tests.kit.flow import Flow, rows
from tests.kit.model import expected
from tests.kit.records import Record, bootstrap, produce, random_changes


@pytest.fixture
def silent_table(silent_server: str, stack: Path, tmp_path: Path) -> Path:
    """A connections file with a ClickHouse that never answers."""
    silent = {"kind": "clickhouse", "endpoints": [silent_server], "timeout_seconds": 600}
    return write_connections(stack, tmp_path, silent=silent)


@pytest.fixture
def flow(topic: Callable[..., str]) -> Flow:
    made = Flow(topic(), ["append", "upsert_delete"], overrides={"interval": "1s"})
    hangs = {"kind": "clickhouse", "connection": "silent", "table": "t.hangs", "mode": "append"}
    made.overrides["tables"] = [*made.spec_document["tables"], hangs]
    return made


@pytest.fixture
def dagster(flow: Flow, silent_table: Path, tmp_path: Path) -> Iterator[ContinuousRun]:
    with continuous_run(tmp_path, silent_table, flow.name, flow.spec_document) as one:
        yield one


@pytest.mark.slow
def test_it_commits_is_taken_over_and_stops_when_paused(
    dagster: ContinuousRun, flow: Flow, connections: Connections
) -> None:
    instance, sent = dagster.instance, list[Record]()
    records = random_changes(seed=3, count=300, keys=40, partitions=1)

    def send(number: int) -> None:
        more = records[len(sent) : len(sent) + number]
        produce(bootstrap(connections), flow.topic, more)
        sent.extend(more)

    def is_there() -> bool:
        """In two tables, although the third one hangs."""
        return all(rows(connections, flow.table(mode)) == expected(sent, mode) for mode in flow.modes)

    send(100)
    first = dagster.started()
    dagster.until(lambda: _exists(connections, flow) and is_there())
    for _ in range(3):
        send(10)
        dagster.until(is_there)
    assert dagster.runs(STATUS.STARTED)[0].run_id == first.run_id

    # Killed with the daemon: another run takes over, and nothing is lost or there twice.
    send(50)
    pid = pid_of(dagster.started())
    assert pid
    os.kill(pid, signal.SIGKILL)
    send(50)
    second = dagster.started(besides=first.run_id)
    dagster.until(is_there)
    killed = instance.get_run_by_id(first.run_id)
    assert killed
    assert killed.status == STATUS.FAILURE

    # What it has done is in Dagster, by hour and with plots. The dead run's steps may have merged all that was there.
    send(10)
    dagster.until(is_there)
    (table, *_), spec, landing = flow.spec.tables, flow.spec, continuous_op(flow.name, landing_key(flow.name))
    dagster.until(lambda: dagster.materialization(table_key(table)))
    dagster.until(lambda: dagster.materialization(topic_keys(flow.name, spec.source)[0]))
    table_shown = dagster.materialization(table_key(table))
    assert table_shown
    assert table_shown.partition
    assert {"batches per minute", "rows per minute", "lag", "batches"} <= set(table_shown.metadata)

    topic = dagster.materialization(topic_keys(flow.name, spec.source)[0])
    assert topic
    assert {f"{flow.name}: {what}" for what in ("lag", "rows per minute", "batches per minute")} <= set(topic.metadata)

    # Paused: nothing moves. Resumed: it goes on from where it stood.
    pauses.pause(instance, flow.name, spec, None, "anna")
    dagster.until(lambda: landing in dagster.ends(second.run_id, dg.DagsterEventType.STEP_SUCCESS))
    send(20)
    pauses.resume(instance, flow.name, spec, None, "anna")
    dagster.started(besides=second.run_id)
    dagster.until(is_there)


def _exists(connections: Connections, flow: Flow) -> bool:
    """The tables have their first batch."""
    found = [catalog(connections).load(flow.table(mode)) for mode in flow.modes]
    return all(table and table.current_snapshot() for table in found)
