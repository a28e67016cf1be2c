"""Rows that are replaced in one commit, on a real SQLite lake: what is gone, what is refused. No Spark here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType

from jobs.batch import CommittedState, MergeCounts
from jobs.destinations.iceberg.read import IcebergReader
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.row_values import RowValues
from jobs.iceberg.file_writer import writing
from jobs.iceberg.folding import FoldTask, foldable
from jobs.iceberg.history import state_properties
from jobs.iceberg.key_search import SHARE, SearchTask
from jobs.iceberg.new_files import NewFile
from jobs.iceberg.position_deletes import by_data_file, write_deletes
from jobs.iceberg.row_delta import RowDelta, can_be_taken
from jobs.iceberg.row_delta_task import RowDeltaTask
from jobs.iceberg.schema import iceberg_schema, partition_spec
from jobs.iceberg.staging import live_files
from jobs.iceberg.statistics import ColumnStatistics
from jobs.maintenance.compaction import drop_dangling_deletes
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.spark.spark_tasks import reports_in
from resources.errors import CommitFailed
from resources.iceberg import IcebergCatalog
from tests.kit.arrow import copied
from tests.kit.batches import committed

NAME = "n.t"
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
MERGE_ON_READ = {"format-version": "2", "write.merge.mode": "merge-on-read"}


def create(lake: IcebergCatalog, by: Sequence[str] = (), **properties: str) -> None:
    schema = iceberg_schema(SCHEMA)
    options = {**MERGE_ON_READ, **{name.replace("_", "."): value for name, value in properties.items()}}
    lake.create(NAME, schema, partition_spec(schema, by), options)


def begin(lake: IcebergCatalog, expected: int) -> RowDelta:
    return RowDelta(lake, NAME, "p", committed(expected) if expected else None)


def rows_of(lake: IcebergCatalog) -> list[tuple[int, str]]:
    found = lake.require(NAME).scan().to_arrow().to_pylist()
    return sorted((row["id"], row["name"]) for row in found)


def add(delta: RowDelta, rows: Sequence[tuple[int, str]]) -> None:
    table = pa.Table.from_pylist([{"id": i, "name": name} for i, name in rows], SCHEMA)
    with writing(delta.files) as writer:
        writer.write({name: table[name] for name in table.column_names})
    delta.add(writer.written)


def remove(lake: IcebergCatalog, delta: RowDelta, positions: Sequence[int], file: int = 0) -> None:
    """Rows at these positions of the first data files, in the order that they were added in."""
    files = delta.files
    entries = [task.file.file_path for task in lake.require(NAME).scan().plan_files()]
    path = sorted(entries, key=lambda path: Path(path.removeprefix("file://")).stat().st_mtime_ns)[file]
    gone = np.array(positions, np.int64)
    delta.remove([write_deletes(files, delta.base_files[path], gone)])


def sent_fold(delta: RowDelta) -> FoldTask:
    """The task that folds files, as a worker gets it."""
    found = delta.fold_task()
    assert found
    return copied(found)


CHANGES = pa.schema(
    [
        *SCHEMA,
        ("__op", pa.string()),
        ("__hit", pa.int32()),
        ("__bm_file", pa.string()),
        ("__bm_pos", pa.int64()),
        ("__bm_writes", pa.bool_()),
        ("__bm_removes", pa.bool_()),
    ]
)


def test_a_task_writes_rows_and_places_and_counts_what_they_do(lake: IcebergCatalog) -> None:
    create(lake)
    first = begin(lake, 0)
    add(first, [(1, "a"), (2, "b"), (3, "c"), (3, "twice"), (4, "d"), (5, "newer")])
    publish(first, 1)
    delta = begin(lake, 1)
    (path,) = (task.file.file_path for task in lake.require(NAME).scan().plan_files())
    changes = [
        (1, "A", "update", 1, path, 0, True, True),
        (2, None, "delete", 1, path, 1, False, True),
        (3, "C", "update", 1, path, 2, True, True),
        (3, "C", "update", 2, path, 3, False, True),
        (5, "older", "update", 1, path, 5, False, False),
        (6, "F", "insert", 0, None, None, True, False),
        (7, None, "delete", 0, None, None, False, False),
    ]
    rows = [dict(zip(CHANGES.names, change, strict=True)) for change in changes]
    batches = [pa.RecordBatch.from_pylist(part, CHANGES) for part in (rows[:3], rows[3:])]
    (report,) = reports_in(RowDeltaTask(delta.files, delta.base_files)(batches))
    delta.add(report.files)
    delta.remove(report.deletes)
    publish(delta, 2)
    assert report.counts == MergeCounts(changes=6, inserted=1, updated=2, deleted=1)
    assert report.duplicates == 1
    assert rows_of(lake) == [(1, "A"), (3, "C"), (4, "d"), (5, "newer"), (6, "F")]


def publish(delta: RowDelta, batch: int) -> int:
    state: CommittedState = committed(batch)
    return delta.publish_append(state.to_properties(), state_properties(state, "main"), rebase=False)


def summary(lake: IcebergCatalog) -> Mapping[str, str]:
    snapshot = lake.require(NAME).current_snapshot()
    assert snapshot
    assert snapshot.summary
    return snapshot.summary.additional_properties


def totals(lake: IcebergCatalog) -> dict[str, int]:
    names = ("total-records", "total-delete-files", "total-position-deletes")
    return {name: int(summary(lake)[name]) for name in names}


def known_count(lake: IcebergCatalog) -> int | None:
    table = IcebergTable(kind="iceberg", table=NAME, mode="upsert")
    return IcebergReader("p", RowValues([]), lake, table, lambda: pytest.fail("Spark is asked")).known_count()


@pytest.mark.parametrize("by", [(), ("bucket(2, id)",)])
def test_each_data_file_has_one_delete_file_that_replaces_its_predecessor(
    lake: IcebergCatalog, by: Sequence[str]
) -> None:
    create(lake, by)
    first = begin(lake, 0)
    add(first, [(2, "a"), (2, "b"), (2, "c")])
    publish(first, 1)
    for batch, (gone, new) in enumerate([(0, "d"), (2, "e")], 2):
        delta = begin(lake, batch - 1)
        remove(lake, delta, [gone])
        add(delta, [(2, new)])
        publish(delta, batch)
    assert rows_of(lake) == [(2, "b"), (2, "d"), (2, "e")]
    assert totals(lake) == {"total-records": 5, "total-delete-files": 1, "total-position-deletes": 2}
    table = lake.require(NAME)
    snapshot = table.current_snapshot()
    assert snapshot
    deletes = list(live_files(table, snapshot.snapshot_id, ManifestContent.DELETES))
    assert [len(own) for own in by_data_file(deletes).values()] == [1]
    assert sum(m.content == ManifestContent.DELETES for m in snapshot.manifests(table.io)) == 1


@pytest.mark.parametrize("by", [(), ("bucket(2, id)",)])
def test_a_data_file_goes_with_its_last_row(lake: IcebergCatalog, by: Sequence[str]) -> None:
    create(lake, by)
    first = begin(lake, 0)
    add(first, [(2, "a"), (2, "b")])
    publish(first, 1)
    for batch, gone in enumerate([0, 1], 2):
        delta = begin(lake, batch - 1)
        remove(lake, delta, [gone])
        add(delta, [(2, f"of {batch}")])
        publish(delta, batch)
    assert rows_of(lake) == [(2, "of 2"), (2, "of 3")]
    assert totals(lake) == {"total-records": 2, "total-delete-files": 0, "total-position-deletes": 0}
    assert summary(lake)["deleted-data-files"] == "1"


@pytest.mark.parametrize("by", [(), ("bucket(2, id)",)])
def test_small_files_become_one_without_the_rows_that_go(lake: IcebergCatalog, by: Sequence[str]) -> None:
    create(lake, by)
    for batch in range(1, 17):
        first = begin(lake, batch - 1)
        assert first.fold_task() is None, "sixteen make one"
        add(first, [(2, f"{batch}"), (2, f"again {batch}")])
        publish(first, batch)
    before = begin(lake, 16)
    remove(lake, before, [0], file=3)
    publish(before, 17)
    with lake.require(NAME).update_schema() as update:
        update.rename_column("name", "title")
        update.add_column("more", IntegerType())
    delta = begin(lake, 17)
    remove(lake, delta, [0, 1], file=5)
    remove(lake, delta, [1], file=7)
    assert delta.fold_task() is None, "one of the sixteen is empty"
    delta = begin(lake, 17)
    remove(lake, delta, [0], file=5)
    remove(lake, delta, [1], file=7)
    fold = sent_fold(delta)
    assert len(fold.groups) == 1
    (report,) = reports_in(fold([pa.RecordBatch.from_pydict({"id": [0]})]))
    delta.fold(fold, report.files)
    publish(delta, 18)
    gone = {"4", "6", "again 8"}
    kept = {f"{again}{batch}" for batch in range(1, 17) for again in ("", "again ")} - gone
    found = lake.require(NAME).scan().to_arrow().to_pylist()
    assert {row["title"] for row in found} == kept
    assert len(found) == len(kept)
    assert totals(lake) == {"total-records": len(kept), "total-delete-files": 0, "total-position-deletes": 0}
    assert (summary(lake)["total-data-files"], summary(lake)["deleted-data-files"]) == ("1", "16")


def test_imported_files_are_folded_with_what_their_partition_says(lake: IcebergCatalog, tmp_path: Path) -> None:
    """Files of Hive, as `migrate` and `add_files` take them: no field ids, no column for what is in their path, and
    columns that the table does not have."""
    items = pa.list_(pa.field("element", pa.struct([("x", pa.int64())])))
    of_file = pa.list_(pa.field("element", pa.struct([("unknown", pa.struct([("y", pa.int64())])), ("x", pa.int64())])))
    schema = iceberg_schema(SCHEMA.append(pa.field("items", items)))
    mapping = create_mapping_from_schema(schema).model_dump_json()
    properties = {**MERGE_ON_READ, "schema.name-mapping.default": mapping}
    lake.create(NAME, schema, partition_spec(schema, ["name"]), properties)
    first = begin(lake, 0)
    for n in range(16):
        value = None if n % 2 else [{"unknown": {"y": n}, "x": n}]
        rows = pa.table({"unknown": [["a"]], "id": [n], "items": pa.array([value], of_file)})
        pq.write_table(rows, path := tmp_path / f"{n}.parquet")
        first.add([NewFile(f"file://{path}", 1, path.stat().st_size, ("a",), ColumnStatistics(), ())])
    publish(first, 1)
    delta = begin(lake, 1)
    fold = sent_fold(delta)
    (report,) = reports_in(fold([pa.RecordBatch.from_pydict({"id": [0]})]))
    delta.fold(fold, report.files)
    publish(delta, 2)
    found = lake.require(NAME).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": n, "name": "a", "items": None if n % 2 else [{"x": n}]} for n in range(16)]
    assert summary(lake)["total-data-files"] == "1"


def test_columns_of_others_that_differ_by_case_only_stay_apart(
    lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline names none of them; one that it names would be refused."""
    monkeypatch.setattr("jobs.iceberg.folding._LEAST_GONE", 1)
    parts = pa.struct([("x", pa.int32()), ("X", pa.string())])
    theirs = pa.schema([*SCHEMA, ("Note", pa.string()), ("note", pa.string()), ("of", parts)])
    table = lake.create(NAME, iceberg_schema(theirs), properties=MERGE_ON_READ)
    rows = [{"id": n, "name": "a", "Note": "A", "note": "b", "of": {"x": n, "X": "c"}} for n in range(3)]
    table.append(pa.Table.from_pylist(rows, theirs))
    with table.update_schema() as update:
        update.update_column(("of", "x"), LongType())
    delta = begin(lake, 0)
    remove(lake, delta, [1])
    fold = sent_fold(delta)
    (report,) = reports_in(fold([pa.RecordBatch.from_pydict({"id": [0]})]))
    delta.fold(fold, report.files)
    publish(delta, 1)
    assert lake.require(NAME).scan().to_arrow().to_pylist() == [rows[0], rows[2]]
    assert summary(lake)["deleted-data-files"] == "1"


def data_file(path: str, rows: int, size: int) -> DataFile:
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=size,
    )
    found.spec_id = 0
    return found


@pytest.mark.parametrize(
    ("sizes", "rows", "folded"),
    [
        ([1] * 15, 9, []),
        ([1] * 16, 9, [16]),
        ([1] * 100, 9, [64]),
        ([*[1] * 15, 5 << 20], 9, []),
        ([(4 << 20) - 1] * 20, 9, [16]),
        # What sixteen tasks of one merge write (`few_changes`).
        ([1 << 20] * 16, 250_000 * 15 // 16, []),
    ],
)
def test_so_many_small_files_are_folded_by_one_batch(sizes: Sequence[int], rows: int, folded: Sequence[int]) -> None:
    assert [len(group) for group in foldable([data_file("f", rows, size) for size in sizes], {}, 0, 64 << 20)] == folded


@pytest.mark.parametrize(
    ("files", "folded"),
    [
        ({"large": (840_000, 12 << 20, 69_999)}, []),
        ({"large": (840_000, 12 << 20, 70_000)}, [["large"]]),
        # Small files of a partition are worn together.
        ({"a": (70_000, 9, 10_000), "b": (50_000, 9, 0)}, [["a", "b"]]),
        ({"a": (72_000, 9, 10_000), "b": (50_000, 9, 0)}, []),
        ({"a": (9_999, 9, 9_998)}, []),
        # The most worn ones first, and so much that a batch does not take long.
        (
            {"less": (500_000, 9, 70_000), "more": (500_000, 9, 80_000), "least": (300_000, 9, 60_000)},
            [["least"], ["more"]],
        ),
        ({"a": (300_000, 9 << 20, 200_000), "b": (300_000, 9 << 20, 100_000)}, [["a"]]),
        ({"rows": (1_100_000, 9, 900_000), "bytes": (300_000, 17 << 20, 200_000)}, []),
        # Many small files are enough for a batch.
        ({"large": (300_000, 9, 200_000), **{f"{n}": (9, 9, 0) for n in range(16)}}, [[f"{n}" for n in range(16)]]),
    ],
)
def test_worn_files_are_folded(files: Mapping[str, tuple[int, int, int]], folded: Sequence[Sequence[str]]) -> None:
    gone = {name: deleted for name, (_, _, deleted) in files.items()}
    groups = foldable([data_file(name, rows, size) for name, (rows, size, _) in files.items()], gone, 0, 64 << 20)
    assert [[found.file_path for found in group] for group in groups] == folded


def test_a_worn_file_is_written_again_without_the_rows_that_go(lake: IcebergCatalog) -> None:
    create(lake)
    count = 300_000  # more than one batch of Arrow's
    first = begin(lake, 0)
    add(first, [(n, "a") for n in range(count)])
    publish(first, 1)
    before, now = [*range(0, 40_000, 2)], [*range(131_000, 132_000), *range(290_000, count)]
    second = begin(lake, 1)
    remove(lake, second, before)
    assert second.fold_task() is None, "a fifteenth"
    publish(second, 2)
    third = begin(lake, 2)
    remove(lake, third, now)
    add(third, [(count, "new")])
    fold = sent_fold(third)
    (report,) = reports_in(fold([pa.RecordBatch.from_pydict({"id": [0]})]))
    third.fold(fold, report.files)
    publish(third, 3)
    assert [n for n, _ in rows_of(lake)] == sorted({*range(count + 1)} - {*before, *now})
    rows = count + 1 - len(before) - len(now)
    assert totals(lake) == {"total-records": rows, "total-delete-files": 0, "total-position-deletes": 0}
    assert (summary(lake)["total-data-files"], summary(lake)["deleted-data-files"]) == ("2", "1")


def test_whoever_computed_from_another_base_is_refused(lake: IcebergCatalog) -> None:
    create(lake)
    first = begin(lake, 0)
    add(first, [(1, "a"), (2, "b")])
    publish(first, 1)
    slow, fast = begin(lake, 1), begin(lake, 1)
    remove(lake, slow, [0])
    add(slow, [(1, "slow")])
    lake.require(NAME).append(pa.table({"id": [7], "name": ["by hand"]}))
    with pytest.raises(CommitFailed, match="another writer has changed the table"):
        publish(slow, 2)
    assert begin(lake, 1).base != fast.base
    assert rows_of(lake) == [(1, "a"), (2, "b"), (7, "by hand")]


@pytest.mark.parametrize(
    ("properties", "possible"),
    [
        ({}, True),
        ({"write_merge_mode": "copy-on-write"}, False),
        ({"format-version": "1"}, False),
        ({"write_format_default": "orc"}, False),
    ],
)
def test_only_tables_that_it_knows_are_taken(lake: IcebergCatalog, properties: dict[str, str], possible: bool) -> None:
    create(lake, **properties)
    assert can_be_taken(lake.require(NAME)) == possible


def test_a_table_with_files_of_an_older_partition_spec_is_not_taken(lake: IcebergCatalog) -> None:
    create(lake)
    with lake.require(NAME).update_spec() as update:
        update.add_identity("name")
    assert not can_be_taken(lake.require(NAME))


def test_deletes_are_in_the_partition_of_their_data_file_whatever_the_spec_is_now(lake: IcebergCatalog) -> None:
    create(lake, ["name"])
    first = begin(lake, 0)
    add(first, [(1, "a"), (2, "a")])
    publish(first, 1)
    delta = begin(lake, 1)
    remove(lake, delta, [0])
    with lake.require(NAME).update_spec() as update:
        update.remove_field("name")
    publish(delta, 2)
    table = lake.require(NAME)
    deletes = live_files(table, table.metadata.current_snapshot_id or 0, ManifestContent.DELETES)
    assert [(file.spec_id, file.partition[0]) for file in deletes] == [(0, "a")]


@pytest.mark.parametrize(
    "wanted", [[(1,), (4,)], [(1, "a"), (4, "x"), (2, "b"), (None, "n")]], ids=["one column", "two"]
)
def test_scan_finds_the_rows_of_the_keys_that_are_not_deleted(
    lake: IcebergCatalog, wanted: list[tuple[Any, ...]]
) -> None:
    create(lake)
    first = begin(lake, 0)
    add(first, [(1, "a"), (2, "b"), (4, "d")])
    add(first, [(70, "z"), (71, "y")])
    publish(first, 1)
    second = begin(lake, 1)
    remove(lake, second, [1])
    publish(second, 2)
    delta = begin(lake, 2)
    names = ["id", "name"][: len(wanted[0])]
    keys = pa.Table.from_pylist(
        [dict(zip(names, key, strict=True)) for key in wanted], pa.schema([SCHEMA.field(n) for n in names])
    )
    search = delta.search_by(names, ["name"])
    assert search
    scan = search.scan_for(keys)
    assert len(scan.search.files) == 1, "the other file has no such key"
    assert len(search.files) == 2
    task = SearchTask({5: search, 7: search.between({"id": ("60", "69")})})
    for_each = [keys.append_column(SHARE, pa.array([number] * len(keys))) for number in (5, 7)]
    found = [row for batch in task(pa.concat_tables(for_each).to_batches()) for row in batch.to_pylist()]
    assert scan.rows().to_pylist() == found
    expected = [(1, "a", 0), (4, "d", 2)] if len(names) == 1 else [(1, "a", 0)]
    assert [(row["id"], row["name"], row["_pos"]) for row in found] == expected


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.date32()], ids=str)
def test_scan_finds_keys_after_the_year_9999(lake: IcebergCatalog, kind: pa.DataType) -> None:
    """A transform may make them, or another writer."""
    lake.create(NAME, iceberg_schema(pa.schema([("at", kind)])), properties=MERGE_ON_READ)
    first, far = begin(lake, 0), 2**31 - 1 if kind == pa.date32() else 10**18
    times = pa.array([far, 5, -far], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    with writing(first.files) as writer:
        writer.write({"at": times})
    first.add(writer.written)
    publish(first, 1)
    search = begin(lake, 1).search_by(["at"])
    assert search
    assert search.scan_for(pa.table({"at": times[:2]})).rows()["_pos"].to_pylist() == [0, 1]


def test_compaction_drops_the_deletes_of_data_files_that_are_gone(lake: IcebergCatalog) -> None:
    create(lake)
    for batch, rows in enumerate([[(1, "a"), (1, "b")], [(2, "c"), (2, "d")]]):
        delta = begin(lake, batch)
        add(delta, rows)
        publish(delta, batch + 1)
    delta = begin(lake, 2)
    remove(lake, delta, [0], file=0)
    remove(lake, delta, [1], file=1)
    publish(delta, 3)
    lake.require(NAME).delete("id = 1")
    assert known_count(lake) == 1, "the deletes of a file that is gone are of no row"
    drop_dangling_deletes(MaintainedTable("p", lake, NAME, "main", True, (), 60))
    assert rows_of(lake) == [(2, "c")]
    assert totals(lake) == {"total-records": 2, "total-delete-files": 1, "total-position-deletes": 1}
    assert known_count(lake) == 1


def test_rows_are_not_counted_where_a_delete_file_may_be_for_several_data_files(
    lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark may write them: some of the data files may be gone."""
    create(lake)
    first = begin(lake, 0)
    add(first, [(1, "a"), (2, "b")])
    publish(first, 1)
    delta = begin(lake, 1)
    remove(lake, delta, [0])
    publish(delta, 2)
    monkeypatch.setattr("jobs.destinations.iceberg.read.only_data_file", lambda _: None)
    assert known_count(lake) is None


@pytest.mark.parametrize(
    ("ends", "left"),
    [
        ({"id": ("3", "50")}, 1),
        ({"id": ("5", "69")}, 0),
        ({"id": ("4", "70")}, 2),
        ({"name": ("e", "x")}, 0),
        ({"id": ("1", "70"), "name": ("y", "y")}, 1),
    ],
    ids=str,
)
def test_files_that_hold_no_key_between_the_ends_are_left_out(
    lake: IcebergCatalog, ends: dict[str, tuple[str, str]], left: int
) -> None:
    create(lake)
    first = begin(lake, 0)
    add(first, [(1, "a"), (2, "b"), (4, "d")])
    add(first, [(70, "z"), (71, "y")])
    publish(first, 1)
    search = begin(lake, 1).search_by(["id", "name"])
    assert search
    assert len(search.between(ends).files) == left
    assert [len(share.files) for share in search.in_shares(4)] == [1, 1]
