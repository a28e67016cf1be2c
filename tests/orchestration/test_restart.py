"""Everything of Dagster is killed in the middle of a run, and started again: the pipeline goes on by itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.launcher import WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.test_utils import create_run_for_test

from orchestration.cli.instance import SETTINGS
from orchestration.launcher import WatchedRunLauncher
from resources.connections import Connections
from resources.local.ports import free_port
from tests.kit import specs
from tests.kit.connections_file import connection_entries, write_connections
from tests.kit.dagster_dev import started
from tests.kit.flow import Flow, rows
from tests.kit.model import expected
from tests.kit.records import bootstrap, produce, random_changes
from tests.kit.waiting import until


@pytest.mark.slow
def test_a_pipeline_goes_on_after_everything_was_killed(
    stack: Path,
    connections: Connections,
    topic: Callable[..., str],
    silent_server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = Flow(topic(), ["upsert_delete"], overrides={"cron": "* * * * *"}, table_options={"connection": "other"})
    records = random_changes(seed=9, count=100, keys=30, partitions=1)
    produce(bootstrap(connections), flow.topic, records)
    specs.write(tmp_path / "pipelines", flow.name, flow.spec_document)
    home = tmp_path / "dagster"
    home.mkdir()
    shutil.copyfile(SETTINGS, home / "dagster.yaml")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    environment = {
        "BATCHMERGE_PIPELINES": str(tmp_path / "pipelines"),
        "BATCHMERGE_CONNECTIONS": str(tmp_path / "connections.yaml"),
    }
    command = [sys.executable, "-m", "dagster", "dev", "-m", "orchestration.definitions", "--host", "127.0.0.1"]
    with dg.DagsterInstance.from_config(str(home)) as instance:

        def runs(status: dg.DagsterRunStatus) -> Callable[[], list[dg.DagsterRun]]:
            return lambda: list(instance.get_runs(dg.RunsFilter(job_name=flow.name, statuses=[status])))

        log = tmp_path / "first.log"
        other = {"kind": "iceberg", "type": "rest", "uri": f"http://{silent_server}"}
        write_connections(stack, tmp_path, other=other)
        with started(command, free_port(()), environment, log) as (_, process):
            (hung,) = until(runs(dg.DagsterRunStatus.STARTED), log, "run")
            # It has landed, and its next step holds the pool of the table.
            landed = dg.AssetKey(["landing", flow.name])
            until(lambda: instance.get_latest_materialization_event(landed), log, "landing")
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert runs(dg.DagsterRunStatus.STARTED)(), "Dagster does not know that it has ended"

        log = tmp_path / "second.log"
        write_connections(stack, tmp_path, other=connection_entries(stack)["lake"])
        with started(command, free_port(()), environment, log):
            until(runs(dg.DagsterRunStatus.SUCCESS), log, "run after the restart")

        dead = instance.get_run_by_id(hung.run_id)
        assert dead
        assert dead.status == dg.DagsterRunStatus.FAILURE
    assert rows(connections, flow.table("upsert_delete"), "other") == expected(records, "upsert_delete")


def test_a_run_is_dead_where_its_code_server_does_not_answer(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestration.launcher._PAUSES", (0.0, 0.0))
    launcher = WatchedRunLauncher()
    launcher.register_instance(instance)
    assert launcher.supports_check_run_worker_health
    nobody = json.dumps({"host": "127.0.0.1", "port": free_port(())})
    lost = create_run_for_test(instance, job_name="p", tags={GRPC_INFO_TAG: nobody})
    assert launcher.check_run_worker_health(lost).status == WorkerStatus.NOT_FOUND
