"""When batches of BigQuery tables are merged, what becomes of a lost staging table, and what `verify` makes of
converted values, on the emulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from jobs.verify.reconciliation import reconcile
from resources.connections import Connections
from tests.kit import model
from tests.kit.bigquery import bigquery_flow, destination, rows, service
from tests.kit.engine import Engine
from tests.kit.records import Record, bootstrap, produce, put, random_changes

pytestmark = pytest.mark.usefixtures("bigquery_tables")


@pytest.fixture
def topic_(topic: Callable[..., str]) -> str:
    return topic(partitions=2)


def test_waits_for_interval_or_count(connections: Connections, spark: SparkSession, topic_: str) -> None:
    flow = bigquery_flow(topic_, ["upsert"], merge_interval_seconds=None, merge_records_threshold=100)
    engine = Engine(flow, connections, spark)
    records = random_changes(1, 60, 10, 2, bad=0)
    produce(bootstrap(connections), topic_, records)
    engine.land()
    assert engine.merge("upsert") is None
    assert rows(connections, flow.table("upsert")) == []
    more = random_changes(2, 60, 10, 2, bad=0)
    produce(bootstrap(connections), topic_, more)
    engine.land()
    assert engine.merge("upsert") is not None
    assert rows(connections, flow.table("upsert")) == model.expected(records + more, "upsert")


def test_lost_staging_table_is_filled_again_under_another_name(
    connections: Connections, spark: SparkSession, topic_: str
) -> None:
    flow = bigquery_flow(topic_, ["append"])
    engine = Engine(flow, connections, spark)
    records: list[Record] = []
    names = []
    for n in range(2):
        more = random_changes(n, 40, 10, 2)
        produce(bootstrap(connections), topic_, more)
        records += more
        engine.advance()
        row = destination(flow, "append", connections).state.read()
        assert row is not None
        names.append(row.staging_table)
        service(connections).delete_table(row.staging_table)
    assert names[0] != names[1]
    assert rows(connections, flow.table("append")) == model.expected(records, "append")


def test_verify_reports_a_row_whose_newer_change_was_skipped(
    connections: Connections, spark: SparkSession, topic_: str
) -> None:
    """BigQuery cannot convert the text of that change, and nothing keeps it."""
    flow = bigquery_flow(topic_, ["upsert"], column_types={"name": "DATE"})
    flow.overrides["on_bad_record"] = "skip"
    engine = Engine(flow, connections, spark)
    engine.produce(put(1, "2024-02-29"), put(2, "2024-02-29"))
    engine.advance()
    engine.produce(put(1, "garbage"))
    engine.advance()
    assert reconcile(engine.pipeline, engine.destination("upsert"), 0).wrong == ["column name differs in 1 rows"]


def test_verify_knows_nulls_from_json_nulls(connections: Connections, spark: SparkSession, topic_: str) -> None:
    coordinates = ["topic", "partition", "offset"]
    flow = bigquery_flow(topic_, ["append"], column_types={"name": "JSON"}, metadata_columns=coordinates)
    engine = Engine(flow, connections, spark)
    engine.produce(*(put(key, text) for key, text in enumerate(['{"a": [1, null]}', "null", None])))
    engine.advance()
    verdict = reconcile(engine.pipeline, engine.destination("append"), 0)
    assert (verdict.compared, verdict.wrong) == (3, [])
