"""The number of rows that a materialization shows is the number of rows that the table has."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import dagster as dg
import pytest

from resources.connections import Connections
from tests.kit import bigquery, clickhouse
from tests.kit.flow import Flow, rows
from tests.kit.model import expected
from tests.kit.records import bootstrap, produce, random_changes
from tests.orchestration.launching import advance

READ = {"iceberg": rows, "clickhouse": clickhouse.rows, "bigquery": bigquery.rows}


@pytest.mark.slow
@pytest.mark.usefixtures("clickhouse", "bigquery")
def test_row_counts_follow_updates_and_deletes(
    connections: Connections, topic: Callable[..., str], instance: dg.DagsterInstance
) -> None:
    flow = Flow(topic(partitions=2), ["upsert_delete"])
    name = flow.table("upsert_delete")
    tables: list[dict[str, object]] = [{"kind": kind, "table": name, "mode": "upsert_delete"} for kind in READ]
    tables.append(tables[0] | {"table": f"{name}_copy_on_write", "write": "copy_on_write"})
    flow.overrides["tables"] = tables
    records = random_changes(seed=3, count=400, keys=60, partitions=2)
    counts = set()
    # The second and the third run insert, update and delete in tables that have rows.
    for begin, end in itertools.pairwise((0, 100, 250, 400)):
        produce(bootstrap(connections), flow.topic, records[begin:end])

        result = advance(instance, flow)

        assert result.success, [step.problem for step in result.steps]
        shown = {step.asset: step.metadata["dagster/row_count"] for step in result.tables}
        wanted = expected(records[:end], "upsert_delete")
        assert {kind: read(connections, name) for kind, read in READ.items()} == dict.fromkeys(READ, wanted)
        assert len(shown) == 4
        assert set(shown.values()) == {len(wanted)}, shown
        counts.add(len(wanted))
    assert len(counts) > 1, "the numbers have to differ for this to prove anything"
