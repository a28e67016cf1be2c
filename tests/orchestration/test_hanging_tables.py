"""Tables that hang, with a Dagster daemon and without: they hold up nobody, and catch up when they answer again."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest

from jobs.connections_file import load_connections
from orchestration.names import LEFT_OUT_TAG, landing_key
from resources.connections import Connections
from resources.local import stack as local_stack
from tests.kit import clickhouse as in_clickhouse
from tests.kit import specs
from tests.kit.command import in_background
from tests.kit.connections_file import connection_entries, write_connections
from tests.kit.continuous import continuous_run
from tests.kit.empty_instance import make_empty_instance
from tests.kit.flow import Flow, rows
from tests.kit.model import expected
from tests.kit.processes import lives
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
) -> None:
    flow = Flow(topic(), ["upsert_delete"], overrides={"cron": "* * * * *", "retry": {"delay_seconds": 1}})
    tables = flow.spec_document["tables"]
    good = tables[0]
    hangs = f"tests.{flow.name}_hangs"
    flow.overrides["tables"] = [
        good | {"table": hangs, "connection": "second"},
        good | {"kind": "clickhouse", "table": hangs},
        good,
    ]
    records = random_changes(seed=11, count=120, keys=30, partitions=1)
    produce(bootstrap(connections), flow.topic, records[:60])
    connections_file = tmp_path / "connections.yaml"

    def committed(*tables: str) -> bool:
        pipeline = flow.pipeline(load_connections(connections_file))
        end = pipeline.topic_state().stable
        states = [pipeline.destination(table).committed() for table in tables]
        return all(state is not None and state.offsets == end for state in states)

    silent = socket.create_server(("127.0.0.1", 0), backlog=64)
    second = {"kind": "iceberg", "type": "rest", "uri": f"http://127.0.0.1:{silent.getsockname()[1]}"}
    write_connections(clickhouse, tmp_path, second=second)
    with silent, continuous_run(tmp_path, connections_file, flow.name, flow.spec_document) as daemon:
        instance, log = daemon.instance, daemon.log

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

        write_connections(clickhouse, tmp_path, second=connection_entries(clickhouse)["lake"])
        stopped_clickhouse()
        silent.close()
        until(lambda: committed(f"iceberg {hangs}", f"clickhouse {hangs}"), log, "end of the tables' catching up")
    assert rows(connections, hangs, "second") == expected(records, "upsert_delete")
    assert in_clickhouse.rows(connections, hangs) == expected(records, "upsert_delete")


def test_other_tables_go_on_in_a_run_without_a_daemon(
    stack: Path,
    connections: Connections,
    topic: Callable[..., str],
    silent_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run waits for the one that hangs, and ends at once when it is asked to."""
    flow, log = Flow(topic(), ["upsert_delete"]), tmp_path / "log"
    tables = flow.spec_document["tables"]
    good = tables[0]
    # Dagster would take it first.
    flow.overrides["tables"] = [good | {"table": f"tests.{flow.name}_hangs", "connection": "hangs"}, good]
    records = random_changes(seed=12, count=60, keys=20, partitions=1)
    produce(bootstrap(connections), flow.topic, records)
    write_connections(stack, tmp_path, hangs={"kind": "iceberg", "type": "rest", "uri": f"http://{silent_server}"})
    specs.write(tmp_path / "pipelines", flow.name, flow.spec_document)
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(tmp_path / "connections.yaml"))
    monkeypatch.setenv("BATCHMERGE_PIPELINES", str(tmp_path / "pipelines"))
    make_empty_instance(tmp_path / "dagster")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:

        def done() -> list[str]:
            runs = instance.get_runs(dg.RunsFilter(job_name=flow.name))
            steps = instance.all_logs(runs[0].run_id, of_type=dg.DagsterEventType.STEP_SUCCESS) if runs else []
            return [str(step.step_key) for step in steps]

        with in_background(f"run {flow.name}", log) as run:
            until(lambda: len(done()) == 2 or not lives(run), log)
            assert lives(run), log.read_text()
            assert not any("hangs" in step for step in done())
            run.send_signal(signal.SIGTERM)
            until(lambda: not lives(run), log)
        (ended,) = instance.get_runs(dg.RunsFilter(job_name=flow.name))
        assert ended.status == STATUS.CANCELED
    assert log.read_text().strip().endswith("cancelled")
    assert rows(connections, flow.table("upsert_delete")) == expected(records, "upsert_delete")
