"""What only BigQuery itself can show. Needs a project: `pytest -m bigquery_real` with BATCHMERGE_BIGQUERY_PROJECT set.

Credentials are application default ones. A dataset `batchmerge_test_<random>` is made and deleted again; location from
BATCHMERGE_BIGQUERY_LOCATION (default US). With BATCHMERGE_BIGQUERY_BUCKET (a bucket's name) files are loaded from
there, too; they are left under `batchmerge-test/`. The tables are small: the cost is that of some dozen tiny queries.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import Any

import pytest

from jobs.destinations.bigquery.job_sequence import JobSequence
from jobs.destinations.bigquery.state import TableAt, TableState
from resources.bigquery import BigQuery
from resources.connections import BigQueryConnection
from resources.errors import CommitFailed
from tests.kit.batches import committed
from tests.kit.bigquery_table import Table, delete, put

PROJECT = os.environ.get("BATCHMERGE_BIGQUERY_PROJECT")
BUCKET = os.environ.get("BATCHMERGE_BIGQUERY_BUCKET")
pytestmark = [
    pytest.mark.bigquery_real,
    pytest.mark.skipif(not PROJECT, reason="needs a BigQuery project: set BATCHMERGE_BIGQUERY_PROJECT"),
]


@pytest.fixture(scope="module")
def dataset() -> Iterator[tuple[BigQuery, str]]:
    location = os.environ.get("BATCHMERGE_BIGQUERY_LOCATION", "US")
    service = BigQuery("real", BigQueryConnection(kind="bigquery", project=str(PROJECT), location=location))
    name = f"batchmerge_test_{uuid.uuid4().hex[:8]}"
    service.create_dataset(name)
    yield service, name
    service.client.delete_dataset(f"{PROJECT}.{name}", delete_contents=True)


def made(dataset: tuple[BigQuery, str], columns: dict[str, str], **options: Any) -> Table:
    service, name = dataset
    table = Table(service, f"{name}.t_{uuid.uuid4().hex[:8]}", {"columns": columns, "table": options})
    table.prepare()
    return table


@pytest.mark.parametrize("kind", ["HOUR", "DAY", "MONTH", "YEAR"])
@pytest.mark.parametrize("mode", ["append", "upsert", "upsert_delete", "delete"])
def test_partitions_by_ingestion_time_follow_the_record(mode: str, kind: str, dataset: tuple[BigQuery, str]) -> None:
    options = {"time_partitioning": kind, "require_partition_filter": True}
    table = made(dataset, {"id": "long", "name": "string"}, mode=mode, **options)
    table.load([put(1, name="a"), put(2, name="b")], times=2)
    table.merge(1, 1)
    table.load([put(1, name="c"), delete(2)])
    table.merge(2, 2)
    text = f"SELECT _PARTITIONTIME AS at, name FROM `{table.name}` WHERE _PARTITIONTIME >= '2000-01-01' ORDER BY name"
    found = [(row["at"], row["name"]) for row in table.emulator.read(text, {}, "test")]
    names = {"append": "abc", "upsert": "bc", "upsert_delete": "c", "delete": "ac"}[mode]
    assert found == [(datetime(2024, 1, 1, tzinfo=UTC), name) for name in names]


def test_required_filter_on_a_column_that_is_not_the_key(dataset: tuple[BigQuery, str]) -> None:
    options = {"time_partitioning": "DAY", "partition_column": "day", "require_partition_filter": True}
    table = made(dataset, {"id": "long", "day": "date"}, mode="upsert_delete", **options)
    table.load([put(1, day=date(2024, 1, 1)), put(2, day=None)])
    table.merge(1, 1)
    table.load([put(1, day=date(2024, 2, 1)), delete(2)])
    table.merge(2, 2)
    text = f"SELECT id, day FROM `{table.name}` WHERE day IS NULL OR day >= '0001-01-01'"
    assert [tuple(row) for row in table.emulator.read(text, {}, "test")] == [(1, date(2024, 2, 1))]


@pytest.mark.parametrize("mode", ["append", "upsert_delete"])
def test_types_that_load_jobs_and_the_merge_convert(mode: str, dataset: tuple[BigQuery, str]) -> None:
    columns = {
        "id": "long",
        "doc": "string",
        "place": "string",
        "clock": "long",
        "big": "decimal(38,20)",
        "wall": "timestamp_ntz",
        "raw": "binary",
        "tags": "array<struct<k: string>>",
    }
    types = {"doc": "JSON", "place": "GEOGRAPHY", "clock": "TIME"}
    table = made(dataset, columns, mode=mode, column_types=types)
    wall = datetime(2024, 1, 1, 2, 3, 4, 5)
    value = {"doc": '{"a": 1}', "place": "POINT(1 2)", "clock": 1, "wall": wall, "raw": b"\x00", "tags": [{"k": "a"}]}
    table.load([put(1, **value)])
    table.merge(1, 1)
    (row,) = table.rows()
    assert row["doc"] == {"a": 1}
    assert (row["wall"], row["raw"], row["tags"]) == (wall, value["raw"], [{"k": "a"}])


def test_nested_columns_are_added_by_the_tables_api_alone(dataset: tuple[BigQuery, str]) -> None:
    table = made(dataset, {"id": "long", "at": "struct<x: int>"}, mode="upsert")
    table.load([put(1, at={"x": 1})])
    table.merge(1, 1)
    table.document = {**table.document, "columns": {"id": "long", "at": "struct<x: int, y: date>"}}
    assert table.prepare() == ["add column at.y date"]
    table.load([put(2, at={"x": 2, "y": date(2024, 1, 1)})])
    table.merge(2, 2)
    assert [row["at"]["y"] for row in table.rows()] == [None, date(2024, 1, 1)]


def test_null_safe_keys(dataset: tuple[BigQuery, str]) -> None:
    service, name = dataset
    document = {
        "columns": {"id": "string", "name": "string"},
        "table": {"mode": "upsert_delete"},
        "key": {"nulls": "match"},
    }
    table = Table(service, f"{name}.t_{uuid.uuid4().hex[:8]}", document)
    table.prepare()
    table.load([put(None, name="a"), put("", name="b")])
    table.merge(1, 1)
    table.load([put(None, name="c"), delete("")])
    table.merge(2, 2)
    assert table.rows() == [{"id": None, "name": "c"}]


@pytest.mark.skipif(not BUCKET, reason="needs a bucket: set BATCHMERGE_BIGQUERY_BUCKET")
def test_landed_files_are_loaded_as_they_are(dataset: tuple[BigQuery, str]) -> None:
    """Their columns that the table lacks, nested ones among them, are passed over."""
    table = made(dataset, {"id": "long", "name": "string", "amount": "decimal(12,2)"}, mode="upsert_delete")
    folder = f"gs://{BUCKET}/batchmerge-test"
    table.load_landed(folder, [put(1, name="a", amount=None), put(2, name="b", amount=None)])
    table.merge(1, 1)
    table.load_landed(folder, [put(1, name="c", amount=None), delete(2)])
    table.merge(2, 2)
    assert table.rows() == [{"id": 1, "name": "c", "amount": None}]


def test_one_job_id_is_accepted_once_by_many_at_once(dataset: tuple[BigQuery, str]) -> None:
    service, name = dataset
    attempts = JobSequence(service, f"batchmerge-test-{uuid.uuid4().hex}", 120)
    service.change(f"CREATE TABLE {name}.once (n INT64)", {}, "test")

    def submit(n: int) -> str:
        text = f"INSERT INTO {name}.once VALUES ({n})"
        return str(attempts.run_until_done(lambda i: service.submit_query(i, text, {}, {"n": str(n)})).labels)

    with ThreadPoolExecutor(8) as pool:
        labels = set(pool.map(submit, range(8)))
    assert len(labels) == 1, "all adopted the same job"
    assert service.read(f"SELECT COUNT(*) AS n FROM {name}.once", {}, "test")[0]["n"] == 1


def test_state_moves_once_for_many_at_once(dataset: tuple[BigQuery, str]) -> None:
    service, name = dataset
    kept = TableState(service, "p", f"{name}.dest", "tmp")
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda _: kept.create("2024", 120), range(4)))
    assert len({row.generation for row in rows}) == 1

    def move(n: int) -> bool:
        try:
            kept.move(rows[0], TableAt(committed(n), {}))
        except CommitFailed:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(move, range(1, 5))) == [False, False, False, True]
