"""Row groups of landed files that are copied into a table byte for byte: every reader finds the landed rows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.changes.columns import landing_schema
from jobs.changes.files import LandedFiles
from jobs.changes.landed_file import LandedFile
from jobs.changes.planned_files import PlannedFiles
from jobs.changes.whole_groups import WholeGroups
from jobs.iceberg.append import Append
from jobs.iceberg.file_writer import writing
from jobs.iceberg.new_files import NewFile, data_file
from jobs.iceberg.row_groups import Source, copying
from jobs.iceberg.schema import iceberg_schema
from resources.errors import StorageError
from resources.iceberg import IcebergCatalog
from tests.kit import specs

COLUMNS = {
    "id": "long",
    "n": "int",
    "yes": "boolean",
    "ratio": "double",
    "part": "float",
    "price": "decimal(9,2)",
    "large": "decimal(30,4)",
    "name": "string",
    "many": "string",
    "raw": "binary",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "nothing": "long",
    "place": "struct<city: string, of: struct<x: double>>",
    "tags": "array<string>",
    "items": "array<struct<x: int, names: array<string>>>",
    "more": "map<string, long>",
}
SPEC = specs.spec(specs.table(mode="append"), columns=COLUMNS)
LANDED = landing_schema(SPEC)
VALUE: pa.StructType = LANDED.field("value").type
PATHS = {name: ("value", name) for name in COLUMNS}
# The table's columns.
TABLE = pa.schema([f.with_nullable(f.name != "id") for f in VALUE])
FULL = frozenset({("value",), ("kafka",), ("value", "id")})
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def value(dice: random.Random, n: int) -> dict[str, Any]:
    row = {
        "id": n,
        "n": dice.randrange(-9, 9),
        "yes": dice.random() < 0.5,
        "ratio": dice.random(),
        "part": float(dice.randrange(100)),
        "price": Decimal(dice.randrange(-999, 999)) / 100,
        "large": Decimal(dice.randrange(10**24)) / 10**4,
        "name": dice.choice(["", "Zürich", "全日空"]),
        "many": f"text {dice.random()}",
        "raw": dice.randbytes(dice.randrange(5)),
        "day": date(2026, 1, 1) + timedelta(days=dice.randrange(400)),
        "at": BEGIN + timedelta(seconds=n),
        "local": datetime(1999, 1, 1) + timedelta(hours=n),
        "nothing": None,
        "place": {"city": dice.choice(["Oslo", None]), "of": dice.choice([None, {"x": None}, {"x": 0.5}])},
        "tags": dice.choice([[], ["a", None], ["b"]]),
        "items": [{"x": dice.randrange(9), "names": dice.choice([None, [], ["x", "y"]])} for _ in range(n % 3)],
        "more": [("k", dice.choice([None, n])), ("l", 1)][: n % 3],
    }
    return {name: None if name != "id" and dice.random() < 0.1 else one for name, one in row.items()}


def landed(count: int, batch: int = 1, seed: int = 1, **others: Any) -> pa.Table:
    """Landed rows; `others`: by column what is otherwise in the last one."""
    dice = random.Random(seed)
    rows = [
        {
            "value": value(dice, n),
            "op": dice.choice(["insert", "upsert"]),
            "i": n,
            "batchNumber": batch,
            "kafka": {"topic": "t", "partition": n % 3, "offset": n, "timestamp": BEGIN},
        }
        for n in range(count)
    ]
    rows[-1] |= others
    return pa.Table.from_pylist(rows, LANDED)


def tables(lake: IcebergCatalog, schema: pa.Schema, properties: Mapping[str, str] | None = None) -> tuple[Table, Table]:
    for name, columns, own in (("n.landed", LANDED, {}), ("n.t", schema, properties or {})):
        lake.create(name, iceberg_schema(columns), properties={"format-version": "2", **own})
    return lake.require("n.landed"), lake.require("n.t")


def written(lake: IcebergCatalog, name: str, parts: Sequence[pa.Table], full: bool = True) -> Append:
    """Rows as a landing task writes them."""
    append = Append(lake, name, "p", None)
    with writing(replace(append.files, full=FULL if full else frozenset())) as writer:
        for rows in parts:
            writer.write({field: rows[field].combine_chunks() for field in rows.column_names})
    append.add(writer.written)
    append.publish_append({}, {})
    return append


def copied(
    lake: IcebergCatalog, columns: Mapping[str, tuple[str, ...]], small: int = 0
) -> tuple[list[NewFile], list[LandedFile], Append]:
    """What is copied of the landed batches, and what is left."""
    found, append = lake.require("n.landed"), Append(lake, "n.t", "p", None)
    snapshot = found.current_snapshot()
    assert snapshot
    operations = ("upsert", "insert", "update")
    files = LandedFiles("n.landed", found.metadata, found.io, snapshot.snapshot_id, operations)
    planned = PlannedFiles(files, tuple(LandedFile.of(file, found.schema()) for file in data_files(found)))
    whole = WholeGroups.of(planned, 1, 1, append.files)
    if whole is None:
        return [], [*(planned.files or ())], append
    with copying(append.files, columns) as groups:
        left = replace(whole, small=small).copy(found.io, planned.files or (), groups)
    append.add(groups.written)
    append.publish_append({}, {})
    return groups.written, left, append


def data_files(table: Table) -> list[DataFile]:
    return [task.file for task in table.refresh().scan().plan_files()]


def values(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.sort_by("id").to_pylist()
    return found


@pytest.mark.parametrize("seed", range(4))
def test_every_reader_finds_the_landed_rows(lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr("jobs.iceberg.file_writer.GROUP_BYTES", 40_000)
    source, table = tables(lake, TABLE)
    rows = landed(900, seed=seed)
    pieces = [rows.slice(start, 100) for start in range(0, 900, 100)]
    written(lake, "n.landed", pieces[:5])
    written(lake, "n.landed", pieces[5:])
    files, left, _ = copied(lake, PATHS)
    assert not left
    (file,) = files
    assert len(file.splits) == sum(len(found.split_offsets or ()) for found in data_files(source))
    assert len(file.splits) > 3

    expected = pa.table(rows["value"].combine_chunks().flatten(), names=list(COLUMNS))
    scan = table.refresh().scan().to_arrow()
    assert values(scan) == values(expected.cast(scan.schema))
    by_duckdb = duckdb.sql("SELECT * FROM read_parquet($path) ORDER BY id", params={"path": file.path})
    # DuckDB gives times in the machine's zone, and maps as dictionaries.
    plain = [name for name in COLUMNS if name not in ("at", "more")]
    assert by_duckdb.to_arrow_table().select(plain).to_pylist() == values(expected.select(plain))
    with pq.ParquetFile(file.path) as parquet:
        assert parquet.metadata.num_rows == 900
        assert [parquet.schema_arrow.field(name).type for name in COLUMNS] == [f.type for f in TABLE]


def test_manifest_says_what_it_would_say_of_rows_that_are_written(lake: IcebergCatalog) -> None:
    _, table = tables(lake, TABLE)
    rows = landed(300)
    written(lake, "n.landed", [rows])
    ((file,), _, append) = copied(lake, PATHS)
    columns = dict(zip(COLUMNS, rows["value"].combine_chunks().flatten(), strict=True))
    with writing(append.files) as writer:
        writer.write(columns)
    (other,) = writer.written
    assert replace(file.statistics, sizes={}) == replace(other.statistics, sizes={})
    assert file.statistics.sizes.keys() == other.statistics.sizes.keys()
    assert (file.rows, file.splits) == (other.rows, other.splits)
    (entry,) = data_files(table)
    assert entry.file_size_in_bytes == data_file(file, append.files).file_size_in_bytes > 0
    by_id = {field.field_id: field.name for field in table.schema().fields}
    with pq.ParquetFile(file.path) as parquet:
        ids = {f.name: int(f.metadata[b"PARQUET:field_id"]) for f in parquet.schema_arrow}
    assert ids == {name: number for number, name in by_id.items()}


def test_metadata_columns_and_names_in_other_case_are_copied(lake: IcebergCatalog) -> None:
    schema = pa.schema([pa.field("ID", pa.int64(), False), ("at_offset", pa.int64()), ("order", pa.int64())])
    _, table = tables(lake, schema)
    written(lake, "n.landed", [landed(50)])
    paths = {"id": ("value", "id"), "at_offset": ("kafka", "offset"), "order": ("i",)}
    files, left, _ = copied(lake, paths)
    assert (len(files), left) == (1, [])
    found = table.refresh().scan().to_arrow().to_pylist()
    assert found == [{"ID": n, "at_offset": n, "order": n} for n in range(50)]


NO_VALUE: dict[str, Any] = {"value": None}
REFUSED = {"stage": "value", "kind": "k", "message": "m", "key": b"", "value": b"", "headers": []}


@pytest.mark.parametrize(
    "last",
    [
        {"op": "delete"},
        {"op": "filtered"},
        {"op": None, "error": REFUSED},
        {"batchNumber": 2},
        {"batchNumber": 0},
        {"revision": 1},
        NO_VALUE,
    ],
)
def test_a_group_with_a_row_that_the_table_does_not_take_is_left(lake: IcebergCatalog, last: dict[str, Any]) -> None:
    tables(lake, TABLE)
    written(lake, "n.landed", [landed(50, **last)])
    written_files, left, _ = copied(lake, PATHS)
    assert (written_files, len(left)) == ([], 1)


@pytest.mark.parametrize(
    ("schema", "properties"),
    [
        (pa.schema([*TABLE, pa.field("other", pa.int64())]), {}),
        (pa.schema([f.with_type(pa.int64()) if f.name == "n" else f for f in TABLE]), {}),
        (pa.schema([f.with_nullable(f.name not in ("id", "n")) for f in VALUE]), {}),
        (pa.schema(VALUE), {}),
        (TABLE, {"write.parquet.compression-codec": "gzip"}),
        (TABLE, {"write.parquet.bloom-filter-enabled.column.id": "true"}),
        (TABLE, {"write.parquet.page-size-bytes": "1000"}),
    ],
)
def test_a_table_that_stores_its_rows_otherwise_gets_no_group(
    lake: IcebergCatalog, schema: pa.Schema, properties: dict[str, str]
) -> None:
    tables(lake, schema, properties)
    written(lake, "n.landed", [landed(50)])
    written_files, left, _ = copied(lake, PATHS)
    assert (written_files, len(left)) == ([], 1)


def test_a_table_with_bloom_filters_gets_no_group_even_if_the_landed_files_have_them_too(lake: IcebergCatalog) -> None:
    """As a catalog's defaults for all tables give both the property."""
    source, _ = tables(lake, TABLE, wanted := {"write.parquet.bloom-filter-enabled.column.id": "true"})
    with source.transaction() as change:
        change.set_properties(wanted)
    written(lake, "n.landed", [landed(50)])
    written_files, left, _ = copied(lake, PATHS)
    assert (written_files, len(left)) == ([], 1)


def test_small_groups_are_left_to_be_put_together(lake: IcebergCatalog) -> None:
    tables(lake, TABLE)
    written(lake, "n.landed", [landed(50)])
    written_files, left, _ = copied(lake, PATHS, small=51)
    assert (written_files, len(left)) == ([], 1)


def test_groups_are_as_small_as_the_columns_that_the_table_has_of_them(
    lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.changes.whole_groups._SMALL_BYTES", 2000)
    for columns, count in ((COLUMNS, 1), (["id"], 0)):
        tables(lake, pa.schema([TABLE.field(name) for name in columns]))
        written(lake, "n.landed", [landed(50)])
        written_files, left, _ = copied(lake, {name: PATHS[name] for name in columns}, small=51)
        assert (len(written_files), len(left)) == (count, 1 - count)
        lake.drop("n.landed")
        lake.drop("n.t")


@pytest.mark.parametrize(("starts", "groups", "count"), [((4, 100), [50], 1), ((4,), [20, 30], 0)])
def test_groups_that_the_manifest_does_not_know_are_copied_at_most_once(
    lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch, starts: tuple[int, ...], groups: list[int], count: int
) -> None:
    monkeypatch.setattr("jobs.iceberg.file_writer.GROUP_BYTES", 1)
    given = LandedFile.of
    monkeypatch.setattr(LandedFile, "of", lambda *file: replace(given(*file), starts=starts))
    tables(lake, TABLE)
    rows, begins = landed(50), [0, *accumulate(groups)]
    written(lake, "n.landed", [rows.slice(begin, size) for begin, size in zip(begins, groups, strict=False)])
    written_files, left, _ = copied(lake, PATHS)
    assert (sum(len(file.splits) for file in written_files), len(left)) == (count, 1)


def test_files_without_the_mark_of_full_columns_are_left(lake: IcebergCatalog) -> None:
    """Such as earlier versions have landed."""
    tables(lake, TABLE)
    written(lake, "n.landed", [landed(50)], full=False)
    written_files, left, _ = copied(lake, PATHS)
    assert (written_files, len(left)) == ([], 1)


def test_files_of_other_writers_are_left(lake: IcebergCatalog) -> None:
    """Their statistics may be wrong in ways that readers know them for."""
    source, _ = tables(lake, TABLE)
    append = written(lake, "n.landed", [landed(50)])
    assert append.rows == 50
    (file,) = data_files(source)
    path = Path(file.file_path.removeprefix("file://"))
    path.write_bytes(path.read_bytes().replace(b"parquet-cpp-arrow", b"parquet-xyz-arrow"))
    written_files, left, _ = copied(lake, PATHS)
    assert (written_files, len(left)) == ([], 1)


BAD: dict[str, Any] = {"value": None, "op": None, "error": REFUSED}


def test_rows_without_a_value_are_in_a_file_of_their_own(lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever row groups they are: all others can be copied, and they themselves make no more than one file."""
    monkeypatch.setattr("jobs.iceberg.file_writer.GROUP_BYTES", 10_000)
    monkeypatch.setattr("jobs.iceberg.file_writer.WORTH_A_GROUP", 1000)
    source, table = tables(lake, TABLE)
    written(lake, "n.landed", [landed(50, seed=seed, **BAD) for seed in range(20)])
    files = data_files(source)
    assert sorted(file.record_count for file in files) == [20, 20 * 49]
    assert [len(file.split_offsets or ()) for file in files if file.record_count == 20] == [1]
    written_files, left, _ = copied(lake, PATHS)
    assert sum(file.rows for file in written_files) == 20 * 49
    assert [file.rows for file in left] == [20]
    assert source.refresh().scan().to_arrow().num_rows == 20 * 50
    assert table.refresh().scan().to_arrow().num_rows == 20 * 49


def test_a_group_without_many_full_rows_is_not_divided(lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a small batch: what could be copied of it is too small for that. Later row groups are copied all the
    same."""
    monkeypatch.setattr("jobs.iceberg.file_writer.GROUP_BYTES", 1)
    source, _ = tables(lake, TABLE)
    written(lake, "n.landed", [landed(5, **BAD), landed(20), landed(5, **BAD)])
    assert sorted(file.record_count for file in data_files(source)) == [10, 20]
    written_files, left, _ = copied(lake, PATHS)
    assert [file.rows for file in written_files] == [20]
    assert len({file.path for file in left}) == 1


def test_a_small_batch_with_rows_without_a_value_is_one_file(lake: IcebergCatalog) -> None:
    source, _ = tables(lake, TABLE)
    written(lake, "n.landed", [landed(50), landed(50, **BAD)])
    assert [file.record_count for file in data_files(source)] == [100]


def test_a_file_of_which_much_is_beside_it_ends_with_that(
    lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.iceberg.file_writer.GROUP_BYTES", 1)
    source, _ = tables(lake, TABLE)
    with source.transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "1000"})
    written(lake, "n.landed", [landed(5, **BAD), landed(5, **BAD), landed(20)])
    assert sorted(file.record_count for file in data_files(source)) == [5, 5, 20]


@pytest.mark.parametrize("kept", [2000, 3])
def test_a_file_that_is_cut_off_is_named(lake: IcebergCatalog, kept: int) -> None:
    source, _ = tables(lake, TABLE)
    written(lake, "n.landed", [landed(50)])
    (file,) = data_files(source)
    path = Path(file.file_path.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[-kept:])
    with pytest.raises(StorageError, match="the file is cut off") as refused:
        copied(lake, PATHS)
    assert str(path) in str(refused.value)


def test_a_file_whose_end_is_cut_off_is_named_wherever_it_ends(lake: IcebergCatalog) -> None:
    source, _ = tables(lake, TABLE)
    written(lake, "n.landed", [landed(50)])
    (file,) = data_files(source)
    path = Path(file.file_path.removeprefix("file://"))
    whole = path.read_bytes()
    for kept in range(0, len(whole), 29):
        path.write_bytes(whole[:kept])
        with pytest.raises(StorageError, match="the file is cut off"), Source.opened(source.io, file.file_path):
            pass
