"""The verification of what is hard to compare: nested columns, named types, demanded filters."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg
import pytest

from jobs.verify.reconciliation import Verdict, reconcile
from resources.connections import Connections, IcebergConnection
from resources.errors import BatchmergeError
from resources.iceberg import IcebergCatalog
from tests.kit.bigquery import service
from tests.kit.clickhouse import servers
from tests.kit.flow import Flow
from tests.kit.records import KEY, Record, bootstrap, produce
from tests.orchestration.launching import advance

Topic = Callable[..., str]

COLUMNS = {
    "id": "long",
    "tags": "array<string>",
    "sizes": "map<string,double>",
    "place": "struct<town: string, spots: array<struct<x: int, at: timestamp>>>",
    "amount": "decimal(9,2)",
    "code": "string",
    "op": "string",
}
KINDS = ("iceberg", "clickhouse", "bigquery")


def _nested(n: int) -> Record:
    spots = [{"x": n, "at": "2026-05-01T12:00:00.123456Z"}, {"x": None, "at": None}]
    value = {
        "id": n,
        "tags": [f"t{n}", "b"] if n % 3 else [],
        "sizes": {"z": n / 4, "a": 1.5},
        "place": {"town": f"n{n}", "spots": spots},
        "amount": f"{n}.50",
        "code": str(n),
        "op": "u",
    }
    return Record(0, n, value)


def _verdicts(flow: Flow, connections: Connections) -> dict[str, Verdict]:
    pipeline = flow.pipeline(connections)
    return {d.table.kind: reconcile(pipeline, d, 0) for d in pipeline.destinations()}


def _wrong(flow: Flow, connections: Connections) -> dict[str, list[str]]:
    return {kind: verdict.wrong for kind, verdict in _verdicts(flow, connections).items()}


@pytest.mark.slow
@pytest.mark.usefixtures("clickhouse", "bigquery")
def test_nested_columns_and_named_types(connections: Connections, topic: Topic, instance: dg.DagsterInstance) -> None:
    flow = Flow(topic(), [])
    name = f"tests.{flow.name}"
    types = {
        "clickhouse": {"column_types": {"code": "LowCardinality(String)", "amount": "Decimal(18, 4)"}},
        "bigquery": {"column_types": {"code": "NUMERIC", "amount": "BIGNUMERIC"}},
    }
    flow.overrides |= {
        "source": {
            "topics": [flow.topic],
            "key": {"format": "json", "columns": KEY},
            "value": {"format": "json", "columns": COLUMNS},
        },
        "tables": [{"kind": k, "table": name, "mode": "upsert_delete", **types.get(k, {})} for k in KINDS],
        "retry": {"max_retries": 0},
    }
    produce(bootstrap(connections), flow.topic, [_nested(n) for n in range(20)])
    assert advance(instance, flow).success
    produce(bootstrap(connections), flow.topic, [_nested(0), Record(0, 19, None)])
    again = advance(instance, flow)
    assert again.success
    # Live rows, of ClickHouse too, which has stored the replaced and deleted ones besides.
    shown = {table.asset.split("/")[0]: table.metadata["dagster/row_count"] for table in again.tables}
    assert (shown["clickhouse"], shown["iceberg"]) == (19, 19)

    found = _verdicts(flow, connections)

    assert {kind: (v.wrong, v.left_out, v.rows, v.compared) for kind, v in found.items()} == dict.fromkeys(
        KINDS, ([], [], 19, 19)
    )

    # Somebody else changes one value of each kind of column.
    lake = IcebergCatalog("lake", connections.get("lake", IcebergConnection)).require(name)
    row = lake.scan(row_filter="id == 3").to_arrow()
    other = row.to_pylist()[0]
    other["sizes"] = [("a", 1.5), ("z", 9.0)]
    other["place"]["spots"][0]["x"] = 99
    lake.overwrite(type(row).from_pylist([other], schema=row.schema), overwrite_filter="id == 3")
    (server,) = servers(connections)
    server.execute(
        f"INSERT INTO {name} (id, tags, sizes, place, amount, code, _version, _deleted) "
        "SELECT id, ['x'], sizes, place, amount + 0.01, 'other', _version + 1000, 0 FROM "
        f"{name} FINAL WHERE id = 4"
    )
    # Not by UPDATE: the emulator cannot assign arrays.
    columns = "id, tags, sizes, place, amount, code"
    other_row = "SELECT id, ['y'], sizes, place, amount, CAST(77 AS NUMERIC)"
    service(connections).change(f"INSERT INTO `{name}` ({columns}) {other_row} FROM `{name}` WHERE id = 5", {}, name)
    service(connections).change(f"DELETE FROM `{name}` WHERE id = 5 AND code = 5", {}, name)

    assert _wrong(flow, connections) == {
        "iceberg": ["column sizes differs in 1 rows", "column place differs in 1 rows"],
        "clickhouse": [f"column {c} differs in 1 rows" for c in ("tags", "amount", "code")],
        "bigquery": ["column tags differs in 1 rows", "column code differs in 1 rows"],
    }


@pytest.mark.usefixtures("bigquery")
def test_a_bigquery_table_that_demands_a_partition_filter(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    flow = Flow(topic(), [])
    columns = {"id": "long", "day": "date", "op": "string"}
    layout = {"time_partitioning": "DAY", "partition_column": "day"}
    table = {"kind": "bigquery", "table": f"tests.{flow.name}", "mode": "upsert", **layout}
    flow.overrides |= {
        "source": {
            "topics": [flow.topic],
            "key": {"format": "json", "columns": KEY},
            "value": {"format": "json", "columns": columns},
        },
        "tables": [table],
        "retry": {"max_retries": 0},
    }
    days = [Record(0, n, {"id": n, "day": "2026-05-01" if n else None, "op": "u"}) for n in range(5)]
    produce(bootstrap(connections), flow.topic, days)
    assert advance(instance, flow).success
    # Only now: the emulator does not see the filter in a MERGE, which BigQuery does.
    demanding = service(connections).find_table(f"tests.{flow.name}")
    assert demanding
    demanding.require_partition_filter = True
    service(connections).update_table(demanding, ["requirePartitionFilter"])
    with pytest.raises(BatchmergeError, match="without a filter"):
        service(connections).read(f"SELECT count(*) FROM `tests.{flow.name}`", {}, "test")

    # The file does not have the option, as where somebody else has made the table.
    (verdict,) = _verdicts(flow, connections).values()

    assert (verdict.wrong, verdict.rows, verdict.compared, verdict.duplicates) == ([], 5, 5, 0)


@pytest.mark.usefixtures("clickhouse")
@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_rows_that_the_table_could_not_take_are_not_missed(
    mode: str, connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    """They are dead letters beside it; of an upsert the row before it stands."""
    flow = Flow(topic(), [])
    table = {"kind": "clickhouse", "table": f"tests.{flow.name}", "mode": mode, "column_types": {"size": "UInt8"}}
    flow.overrides |= {
        "source": {
            "topics": [flow.topic],
            "key": {"format": "json", "columns": KEY},
            "value": {"format": "json", "columns": {"id": "long", "size": "long", "op": "string"}},
        },
        "tables": [table],
    }
    sizes = [(1, 7), (2, 255), (1, 300), (3, -1)]
    records = [Record(0, key, {"id": key, "size": size, "op": "u"}) for key, size in sizes]
    produce(bootstrap(connections), flow.topic, records)
    assert advance(instance, flow).success
    (verdict,) = _verdicts(flow, connections).values()
    assert (verdict.wrong, verdict.rows, verdict.compared) == ([], 2, 2)
