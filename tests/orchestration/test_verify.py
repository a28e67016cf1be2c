"""The verification of real tables in three systems: all is well, then somebody else writes into each of them."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg
import pytest
from pyiceberg.types import StringType

from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.spec.pipeline import PipelineSpec
from jobs.verify.agreement import row_count_mismatches
from jobs.verify.reconciliation import Verdict
from resources.connections import Connections, IcebergConnection
from resources.iceberg import IcebergCatalog
from tests.kit import specs
from tests.kit.bigquery import service
from tests.kit.flow import Flow
from tests.kit.records import bootstrap, produce, upserts
from tests.orchestration.launching import advance, definitions, events

Topic = Callable[..., str]


def _verify(instance: dg.DagsterInstance, flow: Flow) -> dict[tuple[str, str], dg.AssetCheckEvaluation]:
    job = definitions(flow).resolve_job_def(f"{flow.name}_verify")
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert result.success
    return {(e.asset_key.path[0], e.check_name): e for e in result.get_asset_check_evaluations()}


@pytest.mark.usefixtures("clickhouse", "bigquery")
def test_foreign_changes_are_found(connections: Connections, topic: Topic, instance: dg.DagsterInstance) -> None:
    flow = Flow(topic(), [])
    name = f"tests.{flow.name}"
    flow.overrides |= {
        "tables": [{"kind": k, "table": name, "mode": "upsert_delete"} for k in ("iceberg", "clickhouse", "bigquery")],
        "retry": {"max_retries": 0},
    }
    produce(bootstrap(connections), flow.topic, upserts(0, 20))
    assert advance(instance, flow).success
    lake = IcebergCatalog("lake", connections.get("lake", IcebergConnection)).require(name)
    lake.delete("id == 3")
    with lake.update_schema() as schema:
        schema.add_column("remark", StringType())
    service(connections).change(f"INSERT INTO `{name}` (id, name, amount) VALUES (5, 'twice', 1.0)", {}, name)

    # A merge warns of the column that nobody declared, and goes on.
    produce(bootstrap(connections), flow.topic, upserts(20, 1))
    result = advance(instance, flow)
    assert result.success
    checks = [
        event.asset_check_evaluation_data
        for event in events(instance, result, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    ]
    drift = {e.asset_key.path[0]: e for e in checks if e.check_name == "schema_as_declared"}
    assert {kind: e.passed for kind, e in drift.items()} == {"iceberg": False, "clickhouse": True, "bigquery": True}
    assert drift["iceberg"].severity == dg.AssetCheckSeverity.WARN
    assert drift["iceberg"].description == "column remark is in the table and not declared"

    found = _verify(instance, flow)

    assert {key for key, e in found.items() if e.passed} == {
        ("clickhouse", "reconciled"),
        ("clickhouse", "keys_unique"),
    }
    agreement = found.pop(("landing", "tables_agree"))
    assert f"iceberg {name} has 20 rows" in str(agreement.description)
    assert {key: e.description for key, e in found.items() if not e.passed} == {
        ("iceberg", "reconciled"): "20 rows, landed changes make 21",
        ("bigquery", "reconciled"): "22 rows, landed changes make 21; column name differs in 1 rows",
        ("bigquery", "keys_unique"): "1 keys have more than one row",
    }


def test_only_tables_of_one_mode_and_route_at_one_batch_have_to_agree() -> None:
    lake = IcebergTable(kind="iceberg", table="a.t", mode="upsert")
    house = ClickHouseTable(kind="clickhouse", table="a.t", mode="upsert")
    log = ClickHouseTable(kind="clickhouse", table="a.log", mode="append")
    other = IcebergTable(kind="iceberg", table="a.other", mode="upsert")
    tables = [table.model_dump() for table in (lake, house, log, other)]
    document = specs.document(*tables, columns={"id": "long", "into": "string"}, key=specs.ID)
    spec = PipelineSpec.model_validate(document)
    assert (
        row_count_mismatches("p", spec, [(lake, Verdict(3, 10)), (house, Verdict(3, 10)), (log, Verdict(3, 40))]) == []
    )
    assert row_count_mismatches("p", spec, [(lake, Verdict(3, 10)), (house, Verdict(2, 9))]) == []
    assert row_count_mismatches("p", spec, [(lake, Verdict(3, 10)), (house, Verdict(3, 9)), (log, Verdict(3, 40))]) == [
        "at batch 3: iceberg a.t has 10 rows, clickhouse a.t has 9 rows"
    ]
    assert row_count_mismatches("p", spec, [(lake, Verdict(3, 10)), (house, Verdict(3, 9, may_lack=True))]) == []
    named = PipelineSpec.model_validate({**document, "route_by": "into"})
    assert row_count_mismatches("p", named, [(lake, Verdict(3, 10)), (other, Verdict(3, 7))]) == []
    assert row_count_mismatches("p", named, [(lake, Verdict(3, 10)), (house, Verdict(3, 9))])
