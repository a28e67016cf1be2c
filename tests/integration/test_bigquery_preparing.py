"""Making BigQuery tables ready, on the emulator: dry runs, races, layouts, and what is refused before it is written."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from google.api_core.exceptions import NotFound
from google.cloud import bigquery as client

from jobs.destinations.bigquery.destination import BigQueryDestination
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.state import STATE_TABLE
from jobs.destinations.bigquery.tables import new_staging_table
from resources.bigquery import BigQuery
from resources.errors import CommitFailed, ConfigurationError, SchemaRefused, TransientError
from tests.kit import specs
from tests.kit.bigquery import alone

COLUMNS = {"id": "long", "name": "string", "at": "timestamp not null"}


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BigQuery]:
    with alone(tmp_path_factory.mktemp("emulator")) as found:
        yield found


@pytest.fixture
def dataset() -> str:
    return f"d_{uuid.uuid4().hex[:8]}"


def made(
    emulator: BigQuery, dataset: str, columns: dict[str, str] | None = None, **options: object
) -> BigQueryDestination:
    """A destination as a run would open it: with a client of its own."""
    wanted = specs.table("bigquery", "upsert_delete", f"{dataset}.dest") | options
    spec = specs.spec(wanted, columns=columns or COLUMNS, key="id")
    table = specs.entry(spec, BigQueryTable)
    return BigQueryDestination("p", spec, table, emulator.connection)


def test_dry_run_lists_and_does_nothing(emulator: BigQuery, dataset: str) -> None:
    wanted = made(emulator, dataset, time_partitioning="DAY", partition_column="at", cluster_by=["id"])
    listed = wanted.prepare(dry_run=True)
    assert listed == [
        f"create bigquery {dataset}.dest partitioned by DAY of at clustered by id",
        f"create a staging table for bigquery {dataset}.dest",
    ]
    assert emulator.tables(dataset) == []
    with pytest.raises(NotFound):
        emulator.client.get_dataset(dataset)
    assert wanted.committed() is None
    assert len(wanted.prepare()) == 2
    assert wanted.prepare() == []
    grown = made(emulator, dataset, {**COLUMNS, "more": "date"})
    listed = grown.prepare(dry_run=True)
    assert [line.split(": ")[1] for line in listed] == ["add column more date", "add column value.more date"]
    assert grown.prepare(dry_run=True) == listed, "nothing was done"


def test_tables_that_are_as_wanted_are_asked_for_once(
    emulator: BigQuery, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(emulator, dataset).prepare()
    wanted, asked = made(emulator, dataset), list[str]()
    find = BigQuery.find_table

    def noted(bigquery: BigQuery, table: str) -> client.Table | None:
        asked.append(table)
        return find(bigquery, table)

    monkeypatch.setattr(BigQuery, "find_table", noted)
    assert wanted.prepare() == []
    row = wanted.state.read()
    assert row
    assert asked == [f"{dataset}.dest", row.staging_table]


def test_table_is_made_as_the_file_says(emulator: BigQuery, dataset: str) -> None:
    options = {"time_partitioning": "MONTH", "partition_column": "at", "partition_expiration_days": 7}
    more = {
        "cluster_by": ["id", "name"],
        "labels": {"team": "air"},
        "description": "d",
        "require_partition_filter": True,
    }
    made(emulator, dataset, None, **options, **more).prepare()
    found = emulator.find_table(f"{dataset}.dest")
    assert found is not None
    assert (found.time_partitioning.type_, found.time_partitioning.field) == ("MONTH", "at")
    assert found.time_partitioning.expiration_ms == 7 * 24 * 3600 * 1000
    assert found.clustering_fields == ["id", "name"]
    assert found.labels == {"team": "air", "batchmerge-of-p": "1"}
    assert found.description == "d"
    assert [(f.name, f.field_type, f.mode) for f in found.schema] == [
        ("id", "INTEGER", "REQUIRED"),
        ("name", "STRING", "NULLABLE"),
        ("at", "TIMESTAMP", "REQUIRED"),
    ]
    (name,) = [t for t, _ in emulator.tables(dataset) if t.startswith(f"{dataset}._dest_tmp_p_")]
    staged = emulator.find_table(name)
    assert staged is not None
    assert [(f.name, f.field_type, f.mode) for f in staged.schema] == [
        ("key", "RECORD", "NULLABLE"),
        ("value", "RECORD", "NULLABLE"),
        ("partitionTime", "TIMESTAMP", "NULLABLE"),
        ("i", "INTEGER", "REQUIRED"),
        ("batchNumber", "INTEGER", "REQUIRED"),
        ("op", "STRING", "NULLABLE"),
    ]


def test_many_make_it_at_once(emulator: BigQuery, dataset: str) -> None:
    def prepare(_: int) -> None:
        # The emulator refuses some of what is done at the same time; a run would be tried again.
        for _ in range(20):
            with suppress(TransientError):
                made(emulator, dataset).prepare()
                return
        raise AssertionError("never came through")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(prepare, range(4)))
    rows = emulator.read(f"SELECT generation, intermediate_table FROM {dataset}.{STATE_TABLE}", {}, "test")
    assert len(rows) == 1
    names = [t for t, _ in emulator.tables(dataset)]
    assert sorted(names) == sorted([f"{dataset}.dest", f"{dataset}.{STATE_TABLE}", rows[0]["intermediate_table"]])


@pytest.mark.parametrize(
    ("options", "columns", "problem"),
    [
        ({"create": False}, COLUMNS, ConfigurationError),
        ({}, {**COLUMNS, "name": "long"}, SchemaRefused),
        ({"evolve": {"add_columns": False}}, {**COLUMNS, "more": "long"}, SchemaRefused),
    ],
)
def test_refused_before_anything_is_written(
    options: dict[str, object], columns: dict[str, str], problem: type[Exception], emulator: BigQuery, dataset: str
) -> None:
    if problem is SchemaRefused:
        emulator.create_dataset(dataset)
        emulator.change(f"CREATE TABLE {dataset}.dest (id INT64, name STRING, at TIMESTAMP)", {}, "test")
    before = emulator.tables(dataset)
    with pytest.raises(problem):
        made(emulator, dataset, columns, **options).prepare()
    assert emulator.tables(dataset) == before


def test_table_of_a_person_is_taken_as_it_is(emulator: BigQuery, dataset: str) -> None:
    emulator.create_dataset(dataset)
    emulator.change(f"CREATE TABLE {dataset}.dest (ID INT64, own STRING, name STRING, at TIMESTAMP)", {}, "test")
    assert len(made(emulator, dataset, create=False).prepare()) == 1, "only the staging table is new"
    found = emulator.find_table(f"{dataset}.dest")
    assert found is not None
    assert [f.name for f in found.schema] == ["ID", "own", "name", "at"]


def test_view_is_refused_before_anything_is_written(emulator: BigQuery, dataset: str) -> None:
    emulator.create_dataset(dataset)
    emulator.change(f"CREATE TABLE {dataset}.there (id INT64, name STRING, at TIMESTAMP)", {}, "test")
    emulator.change(f"CREATE VIEW {dataset}.dest AS SELECT * FROM {dataset}.there", {}, "test")
    before = emulator.tables(dataset)
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match="it is a view, which takes no rows"):
            made(emulator, dataset).prepare(dry_run)
    assert emulator.tables(dataset) == before


def test_staging_table_has_nested_fields_in_the_destinations_places(emulator: BigQuery, dataset: str) -> None:
    emulator.create_dataset(dataset)
    text = f"CREATE TABLE {dataset}.dest (id INT64, name STRUCT<last STRING, first STRING, title JSON>)"
    emulator.change(text, {}, "test")
    wanted = made(emulator, dataset, {"id": "long", "name": "struct<first: string, last: string>"}, create=False)
    wanted.prepare()
    assert _nested(wanted) == ["last", "first", "title"]
    row = wanted.state.read()
    assert row is not None
    emulator.delete_table(row.staging_table)
    emulator.create_table(new_staging_table(emulator.table_id(row.staging_table), "p", "dest", wanted.staged))
    assert _nested(wanted) == ["first", "last"], "as versions of before have made it"
    assert wanted.prepare(dry_run=True) == [f"create a staging table for bigquery {dataset}.dest"]
    wanted.prepare()
    assert _nested(wanted) == ["last", "first", "title"]
    assert wanted.prepare() == []


def _nested(wanted: BigQueryDestination) -> list[str]:
    row = wanted.state.read()
    assert row is not None
    (value,) = (f for f in wanted.present_staging_table(row.staging_table).schema if f.name == "value")
    return [f.name for f in value.fields[0].fields]


def test_table_that_was_replaced_before_its_first_batch_is_accepted(emulator: BigQuery, dataset: str) -> None:
    made(emulator, dataset).prepare()
    emulator.delete_table(f"{dataset}.dest")
    assert any("create" in line for line in made(emulator, dataset).prepare())
    assert made(emulator, dataset).committed() is None


@pytest.mark.parametrize("step", ["drop_state", "hand_over"])
def test_state_is_not_given_away_beside_a_merge(
    step: str, emulator: BigQuery, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run submits it after everything was looked at."""
    wanted = made(emulator, dataset)
    wanted.prepare()
    row = wanted.state.read()
    assert row is not None
    job_id = f"{wanted.attempts_on(row).prefix}-1"
    delete = BigQuery.delete_table

    def delete_late(service: BigQuery, table: str) -> None:
        emulator.submit_query(job_id, "SELECT 1", {}, {"batchmerge-kind": "merge"})
        delete(service, table)

    monkeypatch.setattr(BigQuery, "delete_table", delete_late)
    with pytest.raises(CommitFailed, match="has merged"):
        wanted.drop_state() if step == "drop_state" else wanted.hand_over("q", None)
    assert wanted.state.read() == row


def test_what_is_ours_does_not_expire(emulator: BigQuery, dataset: str) -> None:
    """The destination table does, as its dataset has it."""
    emulator.create_dataset(dataset)
    found = emulator.client.get_dataset(dataset)
    found.default_table_expiration_ms = found.default_partition_expiration_ms = 24 * 3600 * 1000
    emulator.client.update_dataset(found, ["default_table_expiration_ms", "default_partition_expiration_ms"])
    one = made(emulator, dataset)
    one.prepare()
    side = one.side_table
    older = emulator.create_table(client.Table(emulator.table_id(side.name)))
    assert older.expires is not None, "of an older version"
    side._make()
    tables = [emulator.find_table(name) for name, _ in emulator.tables(dataset)]
    assert len(tables) == 4
    assert [t.table_id for t in tables if t and t.expires] == ["dest"]
    (staging,) = (t for t in tables if t and t.time_partitioning)
    assert staging.time_partitioning.expiration_ms is None
    staging.time_partitioning = client.TimePartitioning(type_="DAY", expiration_ms=24 * 3600 * 1000)
    emulator.update_table(staging, ["time_partitioning"])
    assert one.prepare() == []
    left = emulator.find_table(f"{staging.dataset_id}.{staging.table_id}")
    assert left is not None
    assert left.time_partitioning.expiration_ms is None, "which versions of before have left"
