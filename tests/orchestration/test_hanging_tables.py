"""Tables that hang, under a real Dagster with its daemon: they hold up nobody, and catch up when they answer again."""

from __future__ import annotations

import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest
import yaml

from jobs.connections_file import load_connections
from orchestration.cli.instance import SETTINGS
from orchestration.names import LEFT_OUT_TAG, landing_key
from resources.connections import Connections
from resources.local import stack as local_stack
from resources.local.ports import free_port
from tests.kit import clickhouse as in_clickhouse
from tests.kit import specs
from tests.kit.dagster_dev import running
from tests.kit.flow import Flow, rows
from tests.kit.model import expected
from tests.kit.records import bootstrap, produce, random_changes
from tests.kit.waiting import until

STATUS = dg.DagsterRunStatus


@pytest.fixture
def stopped_clickhouse(clickhouse: Path) -> Iterator[Callable[[], None]]:
    """ClickHouse is stopped in the middle of what it does: it accepts, and never answers. Called, it goes on."""
    (found,) = [one for one in local_stack.status(clickhouse) if one.name == "clickhouse"]
    assert found.pid
    server = psutil.Process(found.pid)
    processes = [server, *server.children(recursive=True)]

    def wake() -> None:
        for process in processes:
            process.send_signal(signal.SIGCONT)

    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield wake
    finally:
        wake()


@pytest.mark.slow
def test_landing_schedule_and_other_tables_go_on_while_tables_hang(
    clickhouse: Path,
    connections: Connections,
    topic: Callable[..., str],
    stopped_clickhouse: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = Flow(topic(), ["upsert_delete"], overrides={"cron": "* * * * *", "retry": {"delay_seconds": 1}})
    tables = flow.spec_document["tables"]
    assert isinstance(tables, list)
    good = tables[0]
    hangs = f"tests.{flow.name}_hangs"
    flow.overrides["tables"] = [
        good | {"table": hangs, "connection": "second"},
        good | {"kind": "clickhouse", "table": hangs},
        good,
    ]
    records = random_changes(seed=11, count=120, keys=30, partitions=1)
    produce(bootstrap(connections), flow.topic, records[:60])
    folder, home, log = tmp_path / "pipelines", tmp_path / "dagster", tmp_path / "log"
    specs.write(folder, flow.name, flow.spec_document)
    home.mkdir()
    shutil.copyfile(SETTINGS, home / "dagster.yaml")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    file = yaml.safe_load((clickhouse / "connections.yaml").read_text())

    def second_is(connection: dict[str, object]) -> None:
        file["connections"]["second"] = connection
        partial = tmp_path / "partial.yaml"
        partial.write_text(yaml.safe_dump(file))
        partial.replace(tmp_path / "connections.yaml")

    def committed(*tables: str) -> bool:
        pipeline = flow.pipeline(load_connections(tmp_path / "connections.yaml"))
        end = pipeline.topic_state().stable
        states = [pipeline.destination(table).committed() for table in tables]
        return all(state is not None and state.offsets == end for state in states)

    environment = {
        "BATCHMERGE_PIPELINES": str(folder),
        "BATCHMERGE_CONNECTIONS": str(tmp_path / "connections.yaml"),
    }
    command = [sys.executable, "-m", "dagster", "dev", "-m", "orchestration.definitions", "--host", "127.0.0.1"]
    silent = socket.create_server(("127.0.0.1", 0), backlog=64)
    second_is({"kind": "iceberg", "type": "rest", "uri": f"http://127.0.0.1:{silent.getsockname()[1]}"})
    with (
        silent,
        dg.DagsterInstance.from_config(str(home)) as instance,
        running(command, free_port(()), environment, log),
    ):

        def first() -> dg.DagsterRun:
            return instance.get_runs(dg.RunsFilter(job_name=flow.name))[-1]

        until(lambda: committed(flow.table("upsert_delete")), log, "merge of the first records")
        produce(bootstrap(connections), flow.topic, records[60:])
        until(lambda: committed(flow.table("upsert_delete")), log, "merge of what came while tables hang")
        assert rows(connections, flow.table("upsert_delete")) == expected(records, "upsert_delete")
        assert first().status == STATUS.STARTED
        others = instance.get_runs(dg.RunsFilter(job_name=flow.name))[:-1]
        assert others
        for run in others:
            assert f"second/tests/{flow.name}_hangs: run {first().run_id[:8]} of" in run.tags[LEFT_OUT_TAG]
            assert landing_key(flow.name) in (run.asset_selection or ())

        second_is(file["connections"]["lake"])
        stopped_clickhouse()
        silent.close()
        until(lambda: committed(f"iceberg {hangs}", f"clickhouse {hangs}"), log, "end of the tables' catching up")
    assert rows(connections, hangs, "second") == expected(records, "upsert_delete")
    assert in_clickhouse.rows(connections, hangs) == expected(records, "upsert_delete")
