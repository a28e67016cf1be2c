"""Dagster's storage in a real PostgreSQL, with the shipped dagster.yaml: runs, events, ticks, checks and cursors.

In a target of its own (`make production`): PostgreSQL comes from the machine's packages, not from a package registry.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.test_utils import create_run_for_test

from orchestration.cli.instance import SETTINGS
from orchestration.components.launch import asked_at
from orchestration.metrics import measures
from orchestration.metrics.assets import Assets
from orchestration.metrics.events import EventTotals
from orchestration.names import PIPELINE_TAG, landing_key
from orchestration.sensors.busy import Free
from resources.connections import Connections
from tests.kit.flow import Flow, rows
from tests.kit.postgres import binaries, running_postgres
from tests.kit.records import Record, bootstrap, produce
from tests.orchestration.launching import advance, definitions, events

pytestmark = pytest.mark.production


@pytest.mark.skipif(binaries() is None, reason="PostgreSQL is not installed (Debian: apt install postgresql)")
def test_runs_and_what_they_showed_are_in_postgresql(
    connections: Connections, topic: Callable[..., str], tmp_path: Path
) -> None:
    pytest.importorskip("dagster_postgres", reason="needs the Python package dagster-postgres")
    (tmp_path / "postgres").mkdir()
    (tmp_path / "home").mkdir()
    with running_postgres(tmp_path / "postgres") as postgres:
        address = f"postgresql+psycopg2://postgres@127.0.0.1:{postgres.port}/postgres"
        settings = yaml.safe_load(SETTINGS.read_text()) | {"storage": {"postgres": {"postgres_url": address}}}
        (tmp_path / "home" / "dagster.yaml").write_text(yaml.safe_dump(settings))
        flow = Flow(topic(), ["upsert"], overrides={"trigger": {"records": 1}})
        changes = [Record(0, n, {"id": n, "name": "n", "amount": 1.0, "op": "u"}) for n in range(7)]
        produce(bootstrap(connections), flow.topic, changes)
        with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
            whole = definitions(flow)
            context = dg.build_sensor_context(instance=instance, definitions=whole)
            due = whole.resolve_sensor_def(f"{flow.name}_lag")(context)
            result = advance(instance, flow)
            checks = events(instance, result, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        assert checks
        assert isinstance(due, dg.SensorResult)
        assert due.run_requests
        assert result.success, [step.problem for step in result.steps]
        assert len(rows(connections, flow.table("upsert"))) == 7

        # Another process of the deployment sees it all.
        with dg.DagsterInstance.from_config(str(tmp_path / "home")) as other:
            key = dg.AssetKey(["iceberg", *flow.table("upsert").split(".")])
            shown = other.get_latest_materialization_event(key)
            assert shown
            assert shown.asset_materialization
            assert shown.asset_materialization.metadata["last batch"].value == 1
            assert events(other, result, dg.DagsterEventType.ASSET_CHECK_EVALUATION) == checks
            assert [run.status for run in other.get_runs()] == [dg.DagsterRunStatus.SUCCESS]
        assert postgres.sql("SELECT count(*) FROM runs") == [["1"]]


@contextmanager
def _instance(folder: Path, zone: str = "UTC") -> Iterator[dg.DagsterInstance]:
    """An instance whose storage is a new PostgreSQL in this time zone."""
    pytest.importorskip("dagster_postgres", reason="needs the Python package dagster-postgres")
    for part in ("postgres", "home"):
        (folder / part).mkdir()
    with running_postgres(folder / "postgres") as postgres:
        postgres.sql(f"ALTER DATABASE postgres SET timezone TO '{zone}'")
        address = f"postgresql+psycopg2://postgres@127.0.0.1:{postgres.port}/postgres"
        settings = yaml.safe_load(SETTINGS.read_text()) | {"storage": {"postgres": {"postgres_url": address}}}
        (folder / "home" / "dagster.yaml").write_text(yaml.safe_dump(settings))
        with dg.DagsterInstance.from_config(str(folder / "home")) as instance:
            yield instance


@pytest.mark.skipif(binaries() is None, reason="PostgreSQL is not installed (Debian: apt install postgresql)")
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_server_in_another_time_zone(zone: str, tmp_path: Path) -> None:
    """Dagster keeps the times at which runs were created and updated there without their zone."""
    asked = list[datetime]()

    @dg.op
    def step(context) -> None:  # type: ignore[no-untyped-def]  # Dagster refuses its own type as text
        asked.append(asked_at(context))

    @dg.job(name="p", tags={PIPELINE_TAG: "p"})
    def job() -> None:
        step()

    with _instance(tmp_path, zone) as instance:
        totals, assets, succeeded = EventTotals(instance), Assets(pipelines=frozenset("p")), 0.0
        for number in range(3):
            begun = datetime.now(UTC)
            assert job.execute_in_process(instance=instance).success
            assert begun <= asked[number] <= datetime.now(UTC)
            found = {(one.measure, one.labels): one.value for one in totals.samples(assets)}
            succeeded = found[measures.RUNS, ("p", "success")]
        assert succeeded == 2, "the first one was there when the totals began"


@pytest.mark.skipif(binaries() is None, reason="PostgreSQL is not installed (Debian: apt install postgresql)")
def test_a_run_that_leaves_out_many_tables_is_accepted(tmp_path: Path) -> None:
    keys = [dg.AssetKey(["clickhouse", "shop", uuid.uuid4().hex]) for _ in range(200)]
    free = Free(left_out=dict.fromkeys(keys, "run 12345678 of p is started"), assets=[landing_key("p")])
    with _instance(tmp_path) as instance:
        tags = free.request(None, {}).tags
        run = create_run_for_test(instance, job_name="p", tags=tags, asset_selection=frozenset({landing_key("p")}))
        assert free.is_what_was_free(run)
