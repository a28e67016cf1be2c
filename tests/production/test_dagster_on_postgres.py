"""Dagster's storage in a real PostgreSQL, with the shipped dagster.yaml: runs, events, ticks, checks and cursors.

In a target of its own (`make production`): PostgreSQL comes from the machine's packages, not from a package registry.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
import yaml

from orchestration.cli.instance import SETTINGS
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
