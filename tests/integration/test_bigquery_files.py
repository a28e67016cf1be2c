"""Landed files that BigQuery loads as they are, and rows that are sent where it cannot: the tables are the same."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from google.cloud.bigquery import LoadJob
from pyspark.sql import SparkSession

from jobs.changes.landed_file import LandedFile
from jobs.destinations.bigquery.loading import Loader
from resources.connections import BigQueryConnection, Connections
from tests.kit import model
from tests.kit.bigquery import bigquery_flow, loads, rows, select
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.lake import files_in
from tests.kit.network import with_connection
from tests.kit.records import COLUMNS, Record, bootstrap, produce, put, random_changes

pytestmark = pytest.mark.usefixtures("bigquery_tables")

MODES = ["append", "upsert_delete", "delete"]


@pytest.fixture
def topic_(topic: Callable[..., str]) -> str:
    return topic(partitions=2)


def check(connections: Connections, flow: Flow, records: list[Record]) -> None:
    for mode in flow.modes:
        assert rows(connections, flow.table(mode)) == model.expected(records, mode), mode


def _is_staged(job: LoadJob) -> bool:
    """Of files that tasks have written for it."""
    return all("/staging/" in path for path in job.source_uris or [""])


def _left_in_staging(engine: Engine) -> list[str]:
    landed = engine.pipeline.intermediate
    return files_in(landed.catalog.require(landed.identifier), "staging")


def test_every_mode_takes_landed_files(connections: Connections, spark: SparkSession, topic_: str) -> None:
    """Deletes with and without a value; batch by batch, then several batches in one load."""
    flow = bigquery_flow(topic_, MODES, max_records=120)
    engine = Engine(flow, connections, spark)
    records: list[Record] = []
    for n in range(2):
        more = random_changes(n, 200, 25, 2, bad=0)
        produce(bootstrap(connections), topic_, more)
        records += more
        while landed := engine.land(1 if n == 0 else 0):
            engine.merge_all()
            if n == 1:
                assert len(landed) > 1
                break
        check(connections, flow, records)
    done = loads(connections, flow)
    assert len(done) == 3 * len(MODES)
    assert all(job.source_uris for job in done)
    assert sum(job.output_rows for job in done) == len(records) * len(MODES)


@pytest.mark.slow
def test_rows_beside_dead_letters_are_sent(connections: Connections, spark: SparkSession, topic_: str) -> None:
    flow = bigquery_flow(topic_, ["append", "upsert_delete"])
    engine = Engine(flow, connections, spark)
    clean, records = random_changes(1, 80, 20, 2, bad=0), random_changes(2, 80, 20, 2, bad=0.1)
    produce(bootstrap(connections), topic_, clean)
    engine.advance()
    produce(bootstrap(connections), topic_, records)
    engine.advance()
    check(connections, flow, clean + records)
    assert sorted(_is_staged(job) for job in loads(connections, flow)) == [False, False, True, True]
    assert _left_in_staging(engine) == []


def test_files_of_tasks_without_rows_are_removed_too(
    connections: Connections, spark: SparkSession, topic_: str
) -> None:
    engine = Engine(bigquery_flow(topic_, ["upsert"]), connections, spark)
    engine.produce(put(1))
    engine.advance()
    engine.replay("upsert", 1, 1)
    assert _left_in_staging(engine) == []


@pytest.mark.slow
def test_a_worker_uploads_rows_where_bigquery_reads_nothing(
    connections: Connections, spark: SparkSession, topic_: str
) -> None:
    known = connections.get("bigquery", BigQueryConnection)
    without = with_connection(connections, "bigquery", known.model_copy(update={"reads": []}))
    flow = bigquery_flow(topic_, MODES)
    records = random_changes(3, 100, 20, 2, bad=0)
    produce(bootstrap(connections), topic_, records)
    Engine(flow, without, spark).advance()
    check(connections, flow, records)
    done = loads(connections, flow)
    assert len(done) == len(MODES)
    assert not any(job.source_uris for job in done)


def test_refused_files_are_followed_by_rows(
    connections: Connections,
    spark: SparkSession,
    topic_: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where BigQuery may not read the bucket, or where its region is another one."""
    flow = bigquery_flow(topic_, ["append", "upsert_delete"])
    records = random_changes(4, 100, 20, 2, bad=0)
    produce(bootstrap(connections), topic_, records)
    gone = LandedFile("file:///nowhere/landed.parquet", 1, 1, (0,), ())
    monkeypatch.setattr(Loader, "landed_files", lambda *_: [gone])
    with caplog.at_level(logging.WARNING, "batchmerge"):
        Engine(flow, connections, spark).advance()
    assert "the landed files are not loaded as they are, rows are sent" in caplog.text
    check(connections, flow, records)
    assert all(_is_staged(job) for job in loads(connections, flow))


@pytest.mark.slow
def test_columns_that_came_between_landing_and_merge(
    connections: Connections, spark: SparkSession, topic_: str
) -> None:
    """Files with different columns are not taken together, and those after it are."""
    flow = bigquery_flow(topic_, ["upsert_delete"])
    engine = Engine(flow, connections, spark)

    def change(key: int, **more: object) -> Record:
        return Record(key % 2, key, {"id": key, "name": f"n{key}", "amount": 1.0, "op": "u", **more})

    produce(bootstrap(connections), topic_, [change(n) for n in range(10)])
    engine.land()
    engine = engine.with_value(columns={**COLUMNS, "extra": "string"})
    produce(bootstrap(connections), topic_, [change(n, extra=f"e{n}") for n in range(5, 15)])
    engine.land()
    engine.merge_all()
    produce(bootstrap(connections), topic_, [change(20, extra="e20")])
    engine.advance()
    found = select(connections, f"SELECT id, extra FROM `{flow.table('upsert_delete')}` ORDER BY id")
    expected = [{"id": n, "extra": f"e{n}" if n >= 5 else None} for n in [*range(15), 20]]
    assert found == expected
    assert sorted(_is_staged(job) for job in loads(connections, flow)) == [False, True]
