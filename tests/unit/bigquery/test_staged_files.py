"""What tasks write for a load, and what they report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io

from jobs.destinations.bigquery.columns import destination_columns, staging_fields
from jobs.destinations.bigquery.flush import RefusedCounts
from jobs.destinations.bigquery.rows import RowShape
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.staged_files import RowsFile, Staged, StagingTask
from jobs.destinations.bigquery.staging import Stager
from jobs.destinations.bigquery.staging_folder import StagingFolder
from jobs.destinations.refusal import Refusal
from jobs.schema.types import parse_type
from jobs.spark.spark_tasks import Batches, reports_in
from tests.kit import specs
from tests.kit.arrow import copied

SPEC = specs.spec(specs.table("bigquery", "upsert_delete"), columns={"id": "long", "name": "string"}, key=specs.ID)
TABLE = BigQueryTable.model_validate(specs.table("bigquery", "upsert_delete"))
COLUMNS = destination_columns(SPEC, TABLE)
FIELDS = tuple(staging_fields(COLUMNS, None))


def rows(first: int, end: int) -> pa.Table:
    """As `RowShape` makes them."""
    numbers = range(first, end)
    times = pa.array([0] * len(numbers), pa.timestamp("us", "UTC"))
    parts = {"c0": numbers, "c1": [f"n{n}" for n in numbers], "op": ["upsert"] * len(numbers)}
    return pa.table({**parts, "partitionTime": times, "i": numbers, "batchNumber": [7] * len(numbers)})


def _given(parts: Iterable[pa.Table], _batches: Batches) -> Iterator[pa.Table]:
    return iter(parts)


def reports(tmp_path: Path, *parts: pa.Table) -> list[Staged]:
    file = RowsFile(Stager(COLUMNS, FIELDS, sanitize=False), Refusal("test", (), "quarantine", "refuse", "x", {}))
    folder = StagingFolder(f"file://{tmp_path}", load_file_io({}))
    task = copied(StagingTask(file, partial(_given, parts), folder))
    return reports_in(task(iter(())))


def test_rows_are_in_one_file_as_the_staging_table_has_them(tmp_path: Path) -> None:
    assert set(rows(0, 1).column_names) == set(RowShape(COLUMNS, None)._landed)
    staged = sum(reports(tmp_path, rows(0, 3), rows(3, 5)), Staged())
    assert (staged.rows, staged.counts, staged.dead_letters) == (5, RefusedCounts(), ())
    (path,) = staged.files
    found = pq.read_table(path.removeprefix("file://"))
    assert found.column_names == [field.name for field in FIELDS]
    assert found["value"].to_pylist()[4] == {"name": "n4"}


def test_columns_of_an_earlier_pipeline_file_are_null() -> None:
    """`changes.order_by` was taken out of the file, and the staging table still has its column."""
    (number,) = (field for field in FIELDS if field.name == "i")
    present = (*FIELDS, replace(number, name="orderBy", mode="NULLABLE"))
    (batch,) = rows(0, 2).to_batches()
    found = Stager(COLUMNS, present, sanitize=False).shape(batch)
    assert found.column("orderBy").to_pylist() == [None, None]
    assert found.column("value").to_pylist() == [{"name": "n0"}, {"name": "n1"}]


def test_a_load_has_a_file_and_none_without_need(tmp_path: Path) -> None:
    nothing = reports(tmp_path)
    (path,) = sum([*nothing, *nothing], Staged()).loaded
    assert pq.read_table(path.removeprefix("file://")).num_rows == 0
    some = sum([*nothing, *reports(tmp_path, rows(0, 2))], Staged())
    assert (some.rows, len(some.loaded), some.empty) == (2, 1, (path,))
    assert some.loaded != (path,)


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("array<long>", [[1], [2, 3], None, [4]]),
        ("array<long>", [[1], [2, None], [3], [4]]),
        ("map<string,long>", [[("a", 1)], [], [("b", 2)], None]),
        ("struct<a: array<long>>", [{"a": [1]}, {"a": [2]}, None, {"a": []}]),
    ],
)
def test_part_of_an_array_is_staged_like_the_whole(kind: str, values: list[Any], first: int) -> None:
    """Arrow makes no lists of a mask and offsets that are part of others."""
    spec = specs.spec(specs.table("bigquery", "upsert"), columns={"id": "long", "c": kind}, key=specs.ID)
    (column,) = [c for c in destination_columns(spec, TABLE) if c.name == "c"]
    stager, array = Stager([column], [], sanitize=False), pa.array(values, parse_type(kind)[0])
    whole, part = (stager.shaped(one, column.staged) for one in (array, array.slice(first)))
    part.validate(full=True)
    assert part.to_pylist() == whole.to_pylist()[first:]
