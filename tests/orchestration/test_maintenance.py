"""The maintenance job in Dagster: what it shows, and that it leaves the pipeline's own runs alone."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg
import pytest
from dagster._core.test_utils import create_run_for_test

from orchestration.names import MAINTENANCE_TAG, PIPELINE_TAG, landing_key, table_key
from orchestration.sensors.busy import busy_reason
from resources.connections import Connections
from tests.kit.flow import Flow
from tests.kit.records import bootstrap, produce, random_changes
from tests.orchestration.launching import advance, definitions

Topic = Callable[..., str]


def _counts(observation: dg.AssetObservation) -> dict[str, int]:
    return {name: shown.value for name, shown in observation.metadata.items() if isinstance(shown.value, int)}


def test_maintenance_shows_what_it_did(connections: Connections, topic: Topic, instance: dg.DagsterInstance) -> None:
    maintenance = {"compaction": {"min_input_files": 2}, "snapshots": {"keep_days": 1e-6, "keep_last": 1}}
    flow = Flow(topic(), ["upsert"], max_records=20, overrides={"maintenance": maintenance})
    for seed in (3, 4):
        produce(bootstrap(connections), flow.topic, random_changes(seed, count=20, keys=9, partitions=1))
        assert advance(instance, flow, until_caught_up=True).success

    result = definitions(flow).resolve_job_def(f"{flow.name}_maintenance").execute_in_process(instance=instance)

    observed = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    shown = {observation.asset_key: _counts(observation) for observation in observed}
    landing, table = shown[landing_key(flow.name)], shown[table_key(flow.spec.tables[0])]
    assert landing["landed: batches removed"] == 0
    assert landing["compaction: files before"] >= landing["compaction: files after"] == 1
    assert table["snapshots: snapshots removed"] > 0
    assert table["compaction: files after"] == 1
    assert table["compaction: bytes before"] > 0
    assert busy_reason(instance, flow.name, flow.spec) is None


@pytest.mark.parametrize(("options", "running"), [({}, True), ({"enabled": False}, False)])
def test_schedule_is_on_where_the_file_says_so(options: dict[str, object], running: bool) -> None:
    flow = Flow("t", ["append"], overrides={"maintenance": {"cron": "0 4 * * 0", **options}})
    made = definitions(flow)
    schedule = made.resolve_schedule_def(f"{flow.name}_maintenance_schedule")
    assert schedule.cron_schedule == "0 4 * * 0"
    assert (schedule.default_status == dg.DefaultScheduleStatus.RUNNING) == running
    assert PIPELINE_TAG not in made.resolve_job_def(f"{flow.name}_maintenance").tags


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED])
def test_a_run_of_maintenance_does_not_start_beside_the_one_before(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus
) -> None:
    made = definitions(Flow("t", ["append"], name="p"), Flow("t", ["upsert"], name="q"))

    def starts(name: str) -> bool:
        with dg.build_schedule_context(instance=instance) as context:
            tick = made.resolve_schedule_def(f"{name}_maintenance_schedule").evaluate_tick(context)
        assert bool(tick.run_requests) or f"of {name}_maintenance is {status.value.lower()}" in str(tick.skip_message)
        return bool(tick.run_requests)

    create_run_for_test(
        instance, job_name="p_maintenance", status=dg.DagsterRunStatus.FAILURE, tags={MAINTENANCE_TAG: "p"}
    )
    assert (starts("p"), starts("q")) == (True, True)
    create_run_for_test(instance, job_name="p_maintenance", status=status, tags={MAINTENANCE_TAG: "p"})
    assert (starts("p"), starts("q")) == (False, True)


def test_tables_that_somebody_else_looks_after_are_left_alone() -> None:
    flow = Flow("t", ["append", "upsert"])
    flow.overrides["maintenance"] = {"skip_tables": [flow.table("append")]}
    ops = definitions(flow).resolve_job_def(f"{flow.name}_maintenance").nodes
    assert len(ops) == 2
    assert not any("append" in op.name for op in ops)


def test_a_table_of_one_system_alone_can_be_left_alone() -> None:
    flow = Flow("t", ["append"], name="p")
    flow.overrides["tables"] = [
        {"kind": kind, "table": "air.flights", "mode": "append"} for kind in ("iceberg", "clickhouse")
    ]
    flow.overrides["maintenance"] = {"skip_tables": ["iceberg air.flights"]}
    ops = definitions(flow).resolve_job_def("p_maintenance").nodes
    assert {op.name for op in ops} == {"p__landing__p__maintenance", "p__clickhouse__air__flights__maintenance"}
