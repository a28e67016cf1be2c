"""Data files that tasks write: their statistics are those of pyiceberg's writer, and every reader finds the rows."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import LongType, NestedField, UUIDType

from jobs.iceberg.append import Append
from jobs.iceberg.conformed import conformed
from jobs.iceberg.file_writer import writing
from jobs.iceberg.new_files import NewFile, NewFiles, data_file
from jobs.iceberg.schema import iceberg_schema, partition_spec, sort_order
from resources.errors import ConfigurationError, SchemaRefused
from resources.iceberg import IcebergCatalog
from tests.kit.arrow import copied

NAME = "n.t"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(9, 2)),
        ("ratio", pa.float64()),
        ("raw", pa.binary()),
        ("nothing", pa.bool_()),
        ("place", pa.struct([("topic", pa.string()), ("offset", pa.int64()), ("o.d-d", pa.string())])),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("more", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
        ("order", pa.struct([("items", pa.list_(pa.field("element", pa.struct([("x", pa.int32())]))))])),
    ]
)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = pa.Table.from_pylist(
    [
        {
            "id": n,
            "name": None if n % 3 == 0 else f"wörd {n:03d} and a long tail",
            "at": BEGIN + timedelta(hours=n),
            "day": date(2026, 1, 1 + n % 5),
            "price": Decimal(n * 7 - 100) / 100,
            "ratio": n / 7,
            "raw": bytes([255] * 20) if n % 2 else b"\x00",
            "place": {"topic": "t", "offset": 5000 + n, "o.d-d": "x"} if n % 4 else None,
            "tags": ["a", None, str(n)] if n % 2 else None,
            "more": [("k", {"x": n})] if n % 5 else None,
            "order": {"items": [{"x": n}, None] if n % 3 else [] if n % 2 else None},
        }
        for n in range(60)
    ],
    schema=SCHEMA,
)


def create(
    lake: IcebergCatalog, by: tuple[str, ...] = (), sort: tuple[str, ...] = (), properties: dict[str, str] | None = None
) -> Table:
    schema = iceberg_schema(SCHEMA)
    named = {"format-version": "2", **(properties or {})}
    lake.create(NAME, schema, partition_spec(schema, by), named, sort_order(schema, sort))
    return lake.require(NAME)


def write(table: Table, rows: pa.Table = ROWS) -> list[DataFile]:
    """As a task does it, and the run that reads its description."""
    files = NewFiles.of(table)
    return [data_file(file, files) for file in described(files, rows, 1)]


def described(files: NewFiles, rows: pa.Table, pieces: int) -> list[NewFile]:
    files = copied(files)
    size = -(-len(rows) // pieces)
    with writing(files) as writer:
        for n in range(pieces):
            part = rows.slice(n * size, size)
            columns = {name: part[name].combine_chunks() for name in part.column_names}
            writer.write(columns)
    return writer.written


def publish(lake: IcebergCatalog, rows: pa.Table = ROWS, pieces: int = 1) -> list[DataFile]:
    append = Append(lake, NAME, "p", None)
    append.add(described(append.files, rows, pieces))
    append.publish_append({}, {})
    return [task.file for task in lake.require(NAME).scan().plan_files()]


def statistics(file: DataFile) -> dict[str, dict[int, Any]]:
    return {
        "values": dict(file.value_counts),
        "nulls": dict(file.null_value_counts),
        "lower": dict(file.lower_bounds),
        "upper": dict(file.upper_bounds),
    }


def test_statistics_are_those_of_pyiceberg_and_of_structs_too(lake: IcebergCatalog) -> None:
    table = create(lake)
    (ours,) = write(table)
    table.append(ROWS.cast(table.schema().as_arrow()))
    (theirs,) = [task.file for task in table.scan().plan_files()]
    assert (ours.record_count, ours.file_size_in_bytes) == (
        60,
        Path(ours.file_path.removeprefix("file://")).stat().st_size,
    )
    schema = table.schema()
    for name in ("id", "name", "at", "day", "price", "ratio", "raw", "nothing"):
        column = schema.find_field(name).field_id
        for kind, by_id in statistics(theirs).items():
            assert statistics(ours)[kind].get(column) == by_id.get(column), (name, kind)
    offset = schema.find_field("place.offset")
    whole: Any = offset.field_type
    bounds: list[Any] = [from_bytes(whole, b[offset.field_id]) for b in (ours.lower_bounds, ours.upper_bounds)]
    assert bounds == [5001, 5059]
    assert ours.null_value_counts[offset.field_id] == theirs.null_value_counts[offset.field_id] == 15
    repeated = schema.find_field("tags.element").field_id
    assert repeated in ours.column_sizes
    assert repeated not in ours.value_counts, "elements are no rows"


def test_times_after_the_year_9999_are_written_with_their_bounds(lake: IcebergCatalog) -> None:
    """A transform may make them: the landed files have to take them."""
    table = create(lake)
    late = 400_000_000_000_000_000
    rows = ROWS.slice(0, 2).set_column(2, "at", pa.array([0, late], pa.int64()).cast(SCHEMA.field("at").type))
    (file,) = write(table, rows.set_column(3, "day", pa.array([0, 9_000_000], pa.int32()).cast(pa.date32())))
    at, day = (table.schema().find_field(name).field_id for name in ("at", "day"))
    assert [int.from_bytes(file.upper_bounds[column], "little") for column in (at, day)] == [late, 9_000_000]


@pytest.mark.parametrize("by", ["year(at)", "month(at)", "day(at)", "hour(at)", "at", "year(day)", "month(day)", "day"])
def test_times_after_the_year_9999_have_partitions(lake: IcebergCatalog, by: str) -> None:
    late = {"at": 400_000_000_000_000_000, "day": 9_000_000}
    rows = ROWS.slice(0, 2)
    for n, column in enumerate(rows.column_names):
        if column in late:
            moments = pa.array([0, late[column]], pa.int32() if column == "day" else pa.int64())
            rows = rows.set_column(n, column, moments.cast(rows.schema.field(column).type))
    create(lake, (by,))
    found = sorted(int(file.partition[0]) for file in publish(lake, rows))
    times = {name: np.datetime64(value, "D" if name == "day" else "us") for name, value in late.items()}
    column, unit = re.sub(r".*\(|\)", "", by), {"y": "Y", "m": "M", "d": "D", "h": "h", "a": "us"}[by[0]]
    assert found == [0, int(times[column].astype(f"datetime64[{unit}]").astype(np.int64))]


@pytest.mark.parametrize(
    ("properties", "bounded"),
    [
        pytest.param({"write.metadata.metrics.default": "counts"}, set[str](), id="counts"),
        pytest.param(
            {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.place.offset": "full"},
            {"place.offset"},
            id="one column",
        ),
        pytest.param(
            {"write.metadata.metrics.max-inferred-column-defaults": "2"}, {"id", "name"}, id="the first of many"
        ),
        pytest.param(
            {"write.metadata.metrics.default": "counts", "write.metadata.metrics.column.id": "all"},
            set[str](),
            id="unknown, of a column",
        ),
        pytest.param(
            {"write.metadata.metrics.default": "all"},
            {"id", "name", "at", "day", "price", "ratio", "raw", "place.topic", "place.offset", "place.o.d-d"},
            id="unknown",
        ),
    ],
)
def test_metrics_by_the_tables_properties(lake: IcebergCatalog, properties: dict[str, str], bounded: set[str]) -> None:
    table = create(lake, properties=properties)
    (file,) = write(table)
    assert {table.schema().find_column_name(column) for column in file.lower_bounds} == bounded


def test_rows_come_back_whole_through_the_catalog(lake: IcebergCatalog) -> None:
    create(lake)
    (file,) = publish(lake, pieces=7)
    found = lake.require(NAME).scan().to_arrow().cast(SCHEMA)
    assert found.sort_by("id").to_pylist() == ROWS.to_pylist()
    footer = pq.ParquetFile(file.file_path.removeprefix("file://")).metadata
    assert footer.num_row_groups == 1, "pieces are gathered"


@pytest.mark.parametrize("by", [("name",), ("bucket(4, id)", "day(at)"), ("truncate(2, name)", "day"), ("month(at)",)])
def test_partitions_are_icebergs_own(lake: IcebergCatalog, by: tuple[str, ...]) -> None:
    table = create(lake, by)
    files = publish(lake, pieces=2)
    assert all(file.spec_id == table.spec().spec_id for file in files)
    spec, schema = table.spec(), table.schema()
    for file in files:
        rows = pq.read_table(file.file_path.removeprefix("file://"))
        for n, field in enumerate(spec.fields):
            kind = schema.find_field(field.source_id).field_type
            values = rows[schema.find_column_name(field.source_id) or ""]
            if values.type in (pa.date32(), pa.timestamp("us", "UTC")):
                values = values.cast(pa.int32() if values.type == pa.date32() else pa.int64())
            assert {field.transform.transform(kind)(value) for value in values.to_pylist()} == {file.partition[n]}
        folders = [f"{spec.fields[n].name}=" for n in range(len(spec.fields))]
        assert all(folder in file.file_path for folder in folders)
    few = lake.require(NAME).scan(row_filter="id = 7 and day = '2026-01-03'").to_arrow()
    assert few["id"].to_pylist() == [7]
    assert sum(file.record_count for file in files) == 60


def test_long_values_make_no_folder_that_no_store_can_have(lake: IcebergCatalog) -> None:
    create(lake, ("name", "bucket(4, id)"))
    names = ["ü" * 1000, "ü" * 1001, "short"]
    rows = ROWS.slice(0, 3).set_column(1, "name", pa.array(names))
    files = publish(lake, rows)
    assert [file.partition[0] for file in sorted(files, key=lambda file: str(file.partition[0]))] == sorted(names)
    assert all(len(folder) <= 255 for file in files for folder in file.file_path.split("/"))
    assert sorted(lake.require(NAME).scan().to_arrow()["name"].to_pylist()) == sorted(names)
    assert len(lake.require(NAME).scan(f"name = '{names[0]}'").to_arrow()) == 1


def test_sorted_tables_have_sorted_files(lake: IcebergCatalog) -> None:
    create(lake, sort=("name", "id"))
    (file,) = publish(lake, ROWS.take(pa.array(range(59, -1, -1))))
    names = pq.read_table(file.file_path.removeprefix("file://"))["name"].to_pylist()
    assert names == sorted(names, key=lambda name: (name is not None, name or ""))


@pytest.mark.parametrize("transform", ["identity", "bucket[4]"])
def test_tables_of_others_may_be_laid_out_by_uuids(lake: IcebergCatalog, transform: str) -> None:
    columns = Schema(NestedField(1, "n", LongType()), NestedField(2, "u", UUIDType()))
    by = PartitionSpec(PartitionField(2, 1000, parse_transform(transform), "u" if transform == "identity" else "u_b"))
    sort = SortOrder(SortField(2, transform=IdentityTransform()))
    lake.create(NAME, columns, by, {"format-version": "2"}, sort)
    ids = pa.array([None, uuid.UUID(int=7).bytes, uuid.UUID(int=2**127).bytes], pa.binary(16))
    files = publish(lake, pa.table({"n": [1, 2, 3], "u": pa.ExtensionArray.from_storage(pa.uuid(), ids)}))
    assert len(files) == 3
    assert [task.file.record_count for task in lake.require(NAME).scan("u is null").plan_files()] == [1]


def test_files_are_rolled_by_size_where_the_table_says(lake: IcebergCatalog) -> None:
    small = {"write.target-file-size-bytes": "1500", "write.parquet.compression-codec": "gzip"}
    create(lake, properties={**small, "write.object-storage.enabled": "true"})
    files = publish(lake, pieces=20)
    assert len(files) > 3
    assert len({file.file_path for file in files}) == len(files)
    footer = pq.ParquetFile(files[0].file_path.removeprefix("file://")).metadata
    assert footer.row_group(0).column(0).compression == "GZIP"
    assert files[0].file_path.split("/data/")[1].count("/") == 4, "the layout of object stores"
    assert sorted(lake.require(NAME).scan().to_arrow()["id"].to_pylist()) == list(range(60))


@pytest.mark.parametrize(
    ("named", "times", "codec"),
    [
        ({}, 1, "SNAPPY"),
        ({"codec": "zstd"}, 1, "SNAPPY"),
        ({"codec": "zstd"}, 1_000, "ZSTD"),
        ({"codec": "zstd", "level": "9"}, 1, "ZSTD"),
        ({"codec": "gzip"}, 1, "GZIP"),
        ({"codec": "gzip", "level": "9"}, 1, "GZIP"),
        ({"codec": "snappy", "level": "9"}, 1, "SNAPPY"),
        ({"codec": "uncompressed", "level": "9"}, 1, "UNCOMPRESSED"),
    ],
)
def test_small_files_are_quick_to_open(lake: IcebergCatalog, named: dict[str, str], times: int, codec: str) -> None:
    create(lake, properties={f"write.parquet.compression-{name}": value for name, value in named.items()})
    (file,) = publish(lake, pa.concat_tables([ROWS] * times))
    footer = pq.ParquetFile(file.file_path.removeprefix("file://")).metadata
    assert footer.row_group(0).column(0).compression == codec


GIVEN = pa.struct([("street", pa.string()), ("City", pa.string())])
WANTED = pa.struct([("city", pa.string()), ("Street", pa.string()), ("more", pa.int64())])
PLACE, AS_WANTED = {"street": "a", "City": "b"}, {"city": "b", "Street": "a", "more": None}


@pytest.mark.parametrize(
    ("given", "wanted", "value", "expected"),
    [
        (GIVEN, WANTED, PLACE, AS_WANTED),
        (pa.struct([("At", GIVEN)]), pa.struct([("at", WANTED)]), {"At": PLACE}, {"at": AS_WANTED}),
        (pa.list_(GIVEN), pa.list_(WANTED), [PLACE, None], [AS_WANTED, None]),
        (pa.map_(pa.string(), GIVEN), pa.map_(pa.string(), WANTED), [("k", PLACE)], [("k", AS_WANTED)]),
    ],
    ids=["struct", "struct in it", "list", "map"],
)
def test_names_in_columns_are_the_same_in_upper_and_lower_case(
    given: pa.DataType, wanted: pa.DataType, value: Any, expected: Any
) -> None:
    rows = conformed({"C": pa.array([None, None, value], given)[1:]}, pa.schema([("c", wanted)]))
    assert rows.to_pydict() == {"c": [None, expected]}


def test_other_formats_are_refused(lake: IcebergCatalog) -> None:
    table = create(lake, properties={"write.format.default": "avro"})
    with pytest.raises(ConfigurationError, match="avro"):
        NewFiles.of(table)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("write.target-file-size-bytes", "512MB"),
        ("write.parquet.row-group-limit", "0"),
        ("write.parquet.compression-level", "best"),
        ("write.metadata.metrics.max-inferred-column-defaults", ""),
        ("write.summary.partition-limit", "many"),
        ("write.parquet.compression-codec", "zstdd"),
        ("write.parquet.compression-codec", "LZO"),
    ],
)
def test_property_with_a_wrong_value_is_named_before_a_task_reads_it(
    lake: IcebergCatalog, name: str, text: str
) -> None:
    """Tables of others may have any."""
    table = create(lake, properties={name: text})
    with pytest.raises(ConfigurationError, match=f"^n.t: its property `{name}` is '{text}'"):
        NewFiles.of(table)


def test_a_level_that_the_codec_lacks_is_named(lake: IcebergCatalog) -> None:
    """Left there when the codec was changed."""
    level = {"write.parquet.compression-level": "15"}
    NewFiles.of(create(lake, properties={**level, "write.parquet.compression-codec": "lz4"}))
    lake.drop(NAME)
    table = create(lake, properties={**level, "write.parquet.compression-codec": "GZIP"})
    with pytest.raises(ConfigurationError, match="compression-level` is '15'"):
        NewFiles.of(table)


@pytest.mark.parametrize(
    "named",
    [
        {"write.avro.compression-codec": "uncompressed"},
        {"write.avro.compression-codec": "snappy"},
        {"write.parquet.bloom-filter-enabled.column.nothing": "true"},
        {"write.parquet.compression-codec": "Brotli", "write.parquet.compression-level": "11"},
    ],
    ids=str,
)
def test_properties_that_iceberg_has_for_others_stop_no_table(lake: IcebergCatalog, named: dict[str, str]) -> None:
    """Data files in Avro, and columns of a type for which Parquet has no such filter."""
    create(lake, properties=named)
    publish(lake)
    assert lake.require(NAME).scan().to_arrow().num_rows == len(ROWS)


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("id", pa.nulls(60, pa.int64()), "column id is `not null`, and a row that is landed has no value"),
        (
            "price",
            pa.array([Decimal("98765432.10")] * 60),
            r"column price is decimal\(9,2\), which cannot hold",
        ),
    ],
)
def test_rows_that_a_tighter_column_cannot_hold_are_named(
    lake: IcebergCatalog, column: str, values: pa.Array, why: str
) -> None:
    """They were landed before the file declared the column so; the table was made since."""
    table = create(lake)
    with pytest.raises(SchemaRefused, match=f"^n.t: {why}.*declare it with") as refused:
        write(table, ROWS.set_column(SCHEMA.get_field_index(column), column, values))
    assert "98765432" not in str(refused.value)


def test_secrets_of_the_storage_are_in_no_text(lake: IcebergCatalog) -> None:
    table = create(lake)
    table.io.properties["s3.secret-access-key"] = "do-not-show"
    assert "do-not-show" not in repr(NewFiles.of(table))
