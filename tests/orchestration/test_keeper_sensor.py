"""The KeeperMap state sensor on a real ClickHouse server: what it shows, and the recovery that it asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test
from pyspark.sql import SparkSession

from jobs import protocol
from orchestration import pauses
from orchestration.names import PIPELINE_TAG
from resources.connections import Connections
from tests.kit.clickhouse import clickhouse_flow, destination, rows
from tests.kit.connections_file import write_connections
from tests.kit.flow import Flow
from tests.kit.interrupting import dying_at
from tests.kit.records import Record, bootstrap, produce
from tests.kit.waiting import until
from tests.orchestration.launching import definitions

Topic = Callable[..., str]


def _tick(instance: dg.DagsterInstance, flow: Flow, cursor: str | None = None) -> dg.SensorResult:
    whole = definitions(flow)
    sensor = whole.resolve_sensor_def(f"{flow.name}_clickhouse_state")
    found = sensor(dg.build_sensor_context(instance=instance, cursor=cursor, definitions=whole))
    assert isinstance(found, dg.SensorResult)
    return found


@pytest.mark.usefixtures("clickhouse")
def test_shows_partitions_and_recovers_what_a_dead_run_has_begun(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    flow = clickhouse_flow(topic(partitions=2), ["append"], time_limit_seconds=100)
    key = dg.AssetKey(["clickhouse", *flow.table("append").split(".")])
    produce(
        bootstrap(connections),
        flow.topic,
        [Record(n % 2, n, {"id": n, "name": "n", "amount": 1.0, "op": "u"}) for n in range(10)],
    )
    assert "no run has come to it yet" in str(_tick(instance, flow).skip_reason)
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    with dying_at("clickhouse.before"):
        protocol.merge(pipeline, pipeline.destinations()[0])

    # The run that died is none of this instance: it has its time limit before it counts as dead.
    early = _tick(instance, flow)
    assert early.run_requests == []
    assert "unknown to this Dagster instance" in str(early.skip_reason)
    (event,) = early.asset_events
    assert event.asset_key == key
    assert (event.metadata["partitions in BEFORE"].value, event.metadata["lag"].value) == (2, 10)
    table = event.metadata["partitions"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [(r.data["state"], r.data["lag"]) for r in table.records] == [("BEFORE", 5), ("BEFORE", 5)]
    assert _tick(instance, flow, early.cursor).asset_events == []

    flow.table_options["time_limit_seconds"] = 1
    busy = create_run_for_test(
        instance, job_name=flow.name, status=dg.DagsterRunStatus.STARTED, tags={PIPELINE_TAG: flow.name}
    )
    until(lambda: "is started" in str(_tick(instance, flow, early.cursor).skip_reason))
    instance.delete_run(busy.run_id)
    flow.overrides["paused"] = True
    paused = _tick(instance, flow, early.cursor)
    assert paused.run_requests == []
    assert "is paused" in str(paused.skip_reason)
    flow.overrides["paused"] = False
    for what in (flow.spec.tables[0], None):
        pauses.pause(instance, flow.name, flow.spec, what, "anna")
        held = _tick(instance, flow, early.cursor)
        assert held.run_requests == []
        assert "is paused by anna since " in str(held.skip_reason)
        pauses.resume(instance, flow.name, flow.spec, None, "anna")
    due = _tick(instance, flow, early.cursor)
    assert due.run_requests
    assert due.run_requests[0].asset_selection == [key]
    assert "requested already" in str(_tick(instance, flow, due.cursor).skip_reason)

    del flow.table_options["time_limit_seconds"]
    done = (
        definitions(flow)
        .resolve_job_def(flow.name)
        .execute_in_process(
            instance=instance,
            partition_key=due.run_requests[0].partition_key,
            asset_selection=list(due.run_requests[0].asset_selection or []),
            tags=dict(due.run_requests[0].tags),
        )
    )
    assert done.success
    assert len(rows(connections, flow.table("append"))) == 10
    after = _tick(instance, flow, due.cursor)
    assert after.run_requests == []
    assert "batch 1 is complete" in str(after.skip_reason)
    assert after.asset_events[0].metadata["lag"].value == 0
    assert json.loads(str(after.cursor))["asked"] == {}
    (lease,) = destination(flow.pipeline(connections), flow.table("append")).leases()
    assert not lease.left_behind


def test_a_server_that_never_answers_is_reported_and_crashes_nothing(
    stack: Path,
    tmp_path: Path,
    topic: Topic,
    instance: dg.DagsterInstance,
    silent_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write_connections(stack, tmp_path, clickhouse={"kind": "clickhouse", "endpoints": [silent_server]})
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(file))
    monkeypatch.setattr("orchestration.sensors.lease_state._PATIENCE", 1)

    found = _tick(instance, clickhouse_flow(topic(), ["append"]))

    assert "no answer within the time limit" in str(found.skip_reason)
    assert (found.run_requests, found.asset_events) == ([], [])
