"""A run that stays (`interval`), on a real daemon: what it commits, and what becomes of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import dagster as dg
import pytest
import yaml

from orchestration import pauses
from orchestration.cli.instance import SETTINGS
from orchestration.names import RESIDENT_TAG, landing_key, resident_op, table_key
from orchestration.run_process import pid_of
from resources.connections import Connections
from resources.local.ports import free_port
from tests.kit import specs
from tests.kit.dagster_dev import started
from tests.kit.engine import catalog
from tests.kit.flow import Flow, rows
from tests.kit.model import expected
from tests.kit.records import Record, bootstrap, produce, random_changes
from tests.kit.waiting import until

STATUS = dg.DagsterRunStatus


class _Dagster:
    def __init__(self, instance: dg.DagsterInstance, log: Path) -> None:
        self.instance, self.log = instance, log

    def until(self, wanted: Callable[[], object]) -> None:
        until(wanted, self.log)

    def runs(self, flow: Flow, *statuses: dg.DagsterRunStatus) -> Sequence[dg.DagsterRun]:
        return self.instance.get_runs(dg.RunsFilter(tags={RESIDENT_TAG: flow.name}, statuses=list(statuses)))

    def stays(self, flow: Flow, besides: str = "") -> dg.DagsterRun:
        """The run that stays, or the one after this one."""
        self.until(lambda: [r for r in self.runs(flow, STATUS.STARTED) if r.run_id != besides])
        return next(r for r in self.runs(flow, STATUS.STARTED) if r.run_id != besides)


@pytest.fixture
def silent_table(silent_server: str, stack: Path, tmp_path: Path) -> Path:
    """A connections file with a ClickHouse that never answers."""
    usual = yaml.safe_load((stack / "connections.yaml").read_text())["connections"]
    silent = {"kind": "clickhouse", "endpoints": [silent_server], "timeout_seconds": 600}
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump({"connections": usual | {"silent": silent}}))
    return tmp_path / "connections.yaml"


@pytest.fixture
def flow(topic: Callable[..., str], tmp_path: Path) -> Flow:
    made = Flow(topic(), ["append", "upsert_delete"], overrides={"interval": "1s"})
    hangs = {"kind": "clickhouse", "connection": "silent", "table": "t.hangs", "mode": "append"}
    made.overrides["tables"] = [*made.spec_document["tables"], hangs]  # type: ignore[misc]
    specs.write(tmp_path / "pipelines", made.name, made.spec_document)
    return made


@pytest.fixture
def dagster(flow: Flow, silent_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Dagster]:
    del flow
    home, log = tmp_path / "dagster", tmp_path / "log"
    home.mkdir()
    (home / "dagster.yaml").write_text(SETTINGS.read_text())
    for name, value in {"DAGSTER_HOME": home, "BATCHMERGE_PIPELINES": tmp_path / "pipelines"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(silent_table))
    command = [sys.executable, "-m", "dagster", "dev", "-m", "orchestration.definitions", "--host", "127.0.0.1"]
    with dg.DagsterInstance.from_config(str(home)) as instance, started(command, free_port(()), {}, log):
        yield _Dagster(instance, log)


@pytest.mark.slow
def test_it_commits_is_taken_over_and_stops_when_paused(
    dagster: _Dagster, flow: Flow, connections: Connections
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
    first = dagster.stays(flow)
    dagster.until(lambda: _exists(connections, flow) and is_there())
    for _ in range(3):
        send(10)
        dagster.until(is_there)
    assert dagster.runs(flow, STATUS.STARTED)[0].run_id == first.run_id

    # Killed with the daemon: another run takes over, and nothing is lost or there twice.
    send(50)
    pid = pid_of(dagster.stays(flow).tags, first.run_id)
    assert pid
    os.kill(pid, signal.SIGKILL)
    send(50)
    second = dagster.stays(flow, besides=first.run_id)
    dagster.until(is_there)
    killed = instance.get_run_by_id(first.run_id)
    assert killed
    assert killed.status == STATUS.FAILURE

    # What it has done is told, and for each hour, with plots.
    (table, *_), spec, landing = flow.spec.tables, flow.spec, resident_op(flow.name, landing_key(flow.name))
    dagster.until(lambda: instance.fetch_materializations(table_key(table), limit=1).records)
    told = instance.fetch_materializations(table_key(table), limit=1).records[0].asset_materialization
    assert told
    assert told.partition
    assert {"batches per minute", "rows per minute", "lag", "batches"} <= set(told.metadata)

    # Paused: nothing moves. Resumed: it goes on from where it stood.
    pauses.pause(instance, flow.name, spec, None, "anna")
    dagster.until(lambda: _ended(instance, second.run_id, landing))
    send(20)
    pauses.resume(instance, flow.name, spec, None, "anna")
    dagster.stays(flow, besides=second.run_id)
    dagster.until(is_there)


def _exists(connections: Connections, flow: Flow) -> bool:
    """The tables have their first batch."""
    found = [catalog(connections).load(flow.table(mode)) for mode in flow.modes]
    return all(table and table.current_snapshot() for table in found)


def _ended(instance: dg.DagsterInstance, run_id: str, step: str) -> bool:
    ends = instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_SUCCESS)
    return any(entry.dagster_event.step_key == step for entry in ends if entry.dagster_event)
