"""Landed changes read from a real table's files, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.io import FileIO, InputFile
from pyiceberg.types import StringType

from jobs.batch import Counts, LandedBatch, LandedBatches
from jobs.changes import landed_file, last_changes, planned_files
from jobs.changes.columns import CHANGES, ROWS, landing_schema
from jobs.changes.files import LandedFiles, LandedSlice, of_batches, of_partition
from jobs.changes.last_changes import LastChanges
from jobs.changes.planned_files import PlannedFiles
from jobs.changes.routing import RouteFilter
from jobs.iceberg.schema import iceberg_schema
from jobs.offsets import OffsetRange, TopicPartition
from jobs.spec.columns import RowColumn
from resources.errors import StorageError
from resources.iceberg import IcebergCatalog
from tests.kit import batches, specs
from tests.kit.arrow import copied
from tests.kit.batches import P0, P1

SCHEMA = landing_schema(
    specs.spec(specs.table(mode="upsert_delete"), columns={"id": "long", "name": "string"}, key=specs.ID)
)


def row(batch: int, i: int, topic: str = "t", partition: int = 0, **parts: Any) -> dict[str, Any]:
    """Position `i` of a batch; its offset is 100 × batch + i."""
    return {
        "key": {"id": i},
        "value": {"id": i, "name": f"{topic}{batch}"},
        "op": "upsert",
        "i": i,
        "batchNumber": batch,
        "kafka": {"topic": topic, "partition": partition, "offset": 100 * batch + i},
        **parts,
    }


BATCH = batches.landed(2)


@dataclass(frozen=True)
class Landing:
    """The table as a destination sees it."""

    catalog: IcebergCatalog
    identifier: str = "landing.flow"
    path: tuple[str, ...] = ("lake", "landing", "flow")

    def landed(self) -> LandedBatches:
        return LandedBatches([BATCH])

    def snapshot_with(self, newest: LandedBatch) -> int:
        assert newest == BATCH
        head = self.catalog.require(self.identifier).current_snapshot()
        assert head is not None
        return head.snapshot_id


BAD = {"stage": "value", "kind": "type", "message": "no"}


@pytest.fixture
def landing(lake: IcebergCatalog) -> Landing:
    table = lake.create("landing.flow", iceberg_schema(SCHEMA))
    for rows in (
        [row(1, n) for n in range(3)] + [row(1, n, "u") for n in range(3, 6)],
        # Two tasks of one batch, the later part first, with a delete and a dead letter.
        [row(2, 2, op="delete", value=None), row(2, 3, op=None, key=None, value=None, error=BAD)],
        [row(2, 0), row(2, 1), row(2, 4, partition=1)],
    ):
        table.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    return Landing(lake)


@pytest.fixture
def files(landing: Landing) -> LandedFiles:
    return LandedFiles.up_to(BATCH, landing)


def places(files: LandedFiles, piece: Any) -> list[tuple[int, int]]:
    rows = files.read(piece)
    return list(zip(rows.at(["batchNumber"]).to_pylist(), rows.at(["i"]).to_pylist(), strict=True))


def test_workers_need_no_metadata_file(files: LandedFiles, landing: Landing) -> None:
    """Fifty commits later it is gone; and what they get does not grow with every snapshot."""
    Path(landing.catalog.require("landing.flow").metadata_location.removeprefix("file://")).unlink()
    sent = copied(files)
    assert [s.snapshot_id for s in sent.metadata.snapshots] == [files.snapshot]
    for one in (files, sent):
        assert places(one, of_partition(1, 1, P0, OffsetRange(101, 103))) == [(1, 1), (1, 2)]


@dataclass(frozen=True)
class BusyLanding(Landing):
    """Another batch is landed meanwhile."""

    def snapshot_with(self, newest: LandedBatch) -> int:
        self.catalog.require(self.identifier).append(pa.Table.from_pylist([row(3, 0)], schema=SCHEMA))
        return super().snapshot_with(newest)


def test_the_snapshot_is_one_that_the_metadata_knows(landing: Landing) -> None:
    files = LandedFiles.up_to(BATCH, BusyLanding(landing.catalog))
    assert places(files, of_batches(3, 3)) == [(3, 0)]


def test_a_piece_of_a_partition_is_its_offsets_in_one_batch_in_order(files: LandedFiles) -> None:
    assert places(files, of_partition(1, 1, P0, OffsetRange(101, 103))) == [(1, 1), (1, 2)]
    assert places(files, of_partition(2, 2, P0, OffsetRange(0, 10_000))) == [(2, 0), (2, 1), (2, 2)]
    assert places(files, of_partition(2, 2, P1, OffsetRange(0, 10_000))) == [(2, 4)]
    assert places(files, of_partition(2, 2, TopicPartition("none", 0), OffsetRange(0, 10_000))) == []


def test_dead_letters_are_left_out_and_operations_chosen(files: LandedFiles) -> None:
    everything = of_batches(1, 2)
    assert (2, 3) not in places(files, everything)
    assert (2, 2) in places(files, everything)
    assert (2, 2) not in places(files.taking(ROWS, None), everything)


def test_only_what_the_route_takes(files: LandedFiles) -> None:
    routed = files.taking(ROWS, RouteFilter(topics=("u",)))
    assert places(routed, of_batches(1, 2)) == [(1, 3), (1, 4), (1, 5)]
    named = files.taking(ROWS, RouteFilter(path=("value", "name"), names=("t2",)))
    assert places(named, of_batches(1, 2)) == [(2, 0), (2, 1), (2, 4)]


def landed(number: int, rows: int, snapshot: int) -> LandedBatch:
    return replace(batches.landed(number), counts=Counts(landed=rows), snapshot_id=snapshot)


def held(files: LandedFiles, *whole: LandedBatch) -> list[str]:
    return [file.path for file in PlannedFiles.of(files, whole, []).holding_only(whole)]


def test_files_of_whole_batches_hold_nothing_else(files: LandedFiles) -> None:
    table = files.table()
    (first, *_) = [s.snapshot_id for s in table.metadata.snapshots]
    (file,) = {task.file.file_path for task in table.scan("batchNumber == 1").plan_files()}
    assert held(files, landed(1, 6, first)) == [file]
    assert held(files, landed(1, 5, first)) == [], "a row that is not of the batch"
    # A file with a dead letter has more rows than the batch has changes.
    assert held(files, landed(2, 4, files.snapshot)) == []
    assert held(files, landed(1, 6, first), landed(2, 4, files.snapshot)) == []
    assert held(files, landed(1, 6, 1)) == [], "its snapshot is gone, so its columns are unknown"


def widened(landing: Landing) -> int:
    """The table gets a column; the snapshot of its first rows."""
    table = landing.catalog.require("landing.flow")
    with table.update_schema() as update:
        update.add_column(("value", "extra"), StringType())
    table.append(table.schema().as_arrow().empty_table())
    return table.metadata.snapshots[0].snapshot_id


def test_files_with_other_columns_are_not_taken_together(files: LandedFiles, landing: Landing) -> None:
    first = widened(landing)
    assert held(files, landed(1, 6, first)), "read as of then"
    now = LandedFiles.up_to(BATCH, landing)
    assert held(now, landed(1, 6, first)) == []


PIECES: list[tuple[int, int, dict[TopicPartition, OffsetRange] | None]] = [
    (1, 2, None),
    (2, 2, None),
    (1, 1, {P0: OffsetRange(101, 103)}),
    (1, 2, {P0: OffsetRange(102, 202), P1: OffsetRange(204, 205)}),
    (2, 2, {P1: OffsetRange(0, 10_000)}),
    (3, 4, None),
]


def _rows(piece: LandedSlice) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(dict(piece.columns)).to_pylist()
    return found


@pytest.mark.parametrize("route", [None, RouteFilter(topics=("t",))])
def test_planned_files_hold_what_a_scan_finds(files: LandedFiles, route: RouteFilter | None) -> None:
    snapshots = [s.snapshot_id for s in files.table().metadata.snapshots]
    files = files.taking(CHANGES, route)
    planned = PlannedFiles.of(files, [landed(1, 6, snapshots[0]), landed(2, 4, snapshots[2])])
    assert planned.files
    planned = copied(planned)
    scanned = replace(planned, files=None)
    for piece in PIECES:
        assert _rows(planned.read(*piece)) == _rows(scanned.read(*piece)), piece
    assert len(planned.read(*PIECES[0])) == (10 if route is None else 7)


def test_many_batches_are_planned_without_a_scan(
    files: LandedFiles, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the live files' bounds: also rows of later batches, of revisions, and files with several batches."""
    monkeypatch.setattr(planned_files, "_FEW", 0)
    snapshots = [s.snapshot_id for s in files.table().metadata.snapshots]
    wanted = [landed(1, 6, snapshots[0]), landed(2, 4, snapshots[2])]
    table = landing.catalog.require("landing.flow")
    table.append(pa.Table.from_pylist([row(3, 0), row(4, 0)], schema=SCHEMA))
    table.append(pa.Table.from_pylist([row(2, 7), row(3, 1)], schema=SCHEMA))
    table.append(pa.Table.from_pylist([row(2, 0, revision=5), row(3, 2)], schema=SCHEMA))
    now = LandedFiles.up_to(BATCH, landing)
    scanned = PlannedFiles(now, None)
    expected = _rows(scanned.read(1, 2))
    monkeypatch.setattr(LandedFiles, "scan", None)
    planned = PlannedFiles.of(now, wanted)
    assert len(planned.files or ()) == 5, "not the one of later batches only"
    assert _rows(planned.read(1, 2)) == expected
    assert len(expected) == 11


def test_a_small_file_is_read_at_once(files: LandedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by one request a column."""
    (first, *_) = [s.snapshot_id for s in files.table().metadata.snapshots]
    (file,) = PlannedFiles.of(files, [landed(1, 6, first)]).files or ()
    requests = list[int]()

    class Counted(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            requests.append(size or 0)
            return super().read(size)

    content = Path(file.path.removeprefix("file://")).read_bytes()
    storage = Mock(new_input=lambda _: Mock(open=lambda: Counted(content)))
    (at_once,) = file.read(storage, file.fetched(storage), ["i", "op", "batchNumber"], 1, 1, None)
    assert requests == [len(content)]
    monkeypatch.setattr(landed_file, "_AT_ONCE", 0)
    (by_column,) = file.read(storage, file.fetched(storage), ["i", "op", "batchNumber"], 1, 1, None)
    assert at_once.equals(by_column)
    assert len(requests) > 2, "the footer, and then columns"


def _ids(*pieces: LandedSlice) -> list[tuple[int, int, str | None]]:
    """Batch, position and one of the values of some rows."""
    paths = [("batchNumber",), ("i",), ("value", "name")]
    return sorted(row for piece in pieces for row in zip(*(piece.at(p).to_pylist() for p in paths), strict=True))


@pytest.mark.parametrize(
    ("limit", "most"),
    [("_PIECE_ROWS", 1), ("_PIECE_BYTES", 1), ("_PIECE_ROWS", 250_000)],
    ids=["many rows", "large rows", "small files"],
)
@pytest.mark.parametrize("route", [None, RouteFilter(path=("key", "id"), names=("0", "2"))])
def test_pieces_and_shares_are_all_rows(
    files: LandedFiles,
    landing: Landing,
    route: RouteFilter | None,
    limit: str,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of some columns only, also where a route goes by another."""
    monkeypatch.setattr(planned_files, limit, most)
    with landing.catalog.require("landing.flow").transaction() as change:
        change.set_properties({"write.parquet.row-group-limit": "2"})
    table = landing.catalog.require("landing.flow")
    table.append(pa.Table.from_pylist([row(2, n) for n in range(5, 10)], schema=SCHEMA))
    files = LandedFiles.up_to(BATCH, landing).taking(CHANGES, route)
    snapshots = [s.snapshot_id for s in table.metadata.snapshots]
    both = [landed(1, 6, snapshots[0]), landed(2, 9, snapshots[3])]
    planned = copied(PlannedFiles.of(files, both, [("value", "name")]))
    assert planned.files
    assert max(len(file.starts) for file in planned.files) == 3
    whole = _ids(PlannedFiles.of(files, both).read(1, 2))
    assert len(whole) == (15 if route is None else 4)
    assert _ids(*planned.in_pieces(1, 2)) == whole
    assert _ids(*(piece for n in range(3) for piece in planned.share(n, 3).in_pieces(1, 2))) == whole
    assert _ids(planned.read(2, 2, {P0: OffsetRange(207, 209)})) == [
        one for one in whole if (2, 7) <= one[:2] < (2, 9)
    ], "row groups that cannot hold them are left out"
    scanned = replace(planned, files=None)
    assert _ids(*(piece for n in range(3) for piece in scanned.share(n, 3).in_pieces(1, 2))) == whole
    if most == 1:
        assert len(list(planned.in_pieces(1, 2))) == planned.most_shares, "a row group at a time"


@pytest.mark.parametrize(("files", "groups"), [(1, 3), (12, 1)], ids=["compacted", "small files"])
def test_pieces_are_what_was_read_and_not_what_was_estimated(
    landing: Landing, files: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts that compress a hundredfold, also in row groups that are larger than those of our own writer."""
    monkeypatch.setattr(planned_files, "_PIECE_BYTES", 4 << 20)
    monkeypatch.setattr(landed_file, "GROUP_BYTES", 1 << 20)
    table = landing.catalog.require("landing.flow")
    with table.transaction() as change:
        change.set_properties({"write.parquet.row-group-limit": "3"})
    rows = [{**row(5, n), "value": {"id": n, "name": "x" * 1_000_000}} for n in range(3 * groups)]
    for _ in range(files):
        table.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    files_of = LandedFiles.up_to(BATCH, landing)
    planned = PlannedFiles.of(files_of, [landed(5, 3 * groups * files, files_of.snapshot)])
    assert {len(file.starts) for file in planned.files or ()} == {groups}
    assert planned.most_shares == files, "nothing shows how large the rows are"
    assert [len(piece) for piece in planned.in_pieces(5, 5)] == [3] * groups * files


def test_a_task_reads_no_more_than_an_array_has_room_for(files: LandedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = [s.snapshot_id for s in files.table().metadata.snapshots]
    planned = PlannedFiles.of(files, [landed(1, 6, first)])
    changes = LastChanges(planned, 1, 1, (RowColumn("id", pa.int64(), False, ("key", "id"), True),), False)
    assert len(changes.read() or ()) == 6
    monkeypatch.setattr(last_changes, "_MOST_BYTES", 1)
    assert changes.read() is None


@pytest.mark.slow
def test_texts_that_no_array_has_room_for_are_read_in_pieces(landing: Landing) -> None:
    """2.2 GB of one column in one batch: 2,200 records of 1 MB, which are small when compressed."""
    table = landing.catalog.require("landing.flow")
    with table.transaction() as change:
        change.set_properties({"write.parquet.row-group-limit": "60"})
    text, ones = "x" * 1_000_000, [row(5, n) for n in range(2200)]
    large = [{**one, "value": {**one["value"], "name": text}} for one in ones]
    parts = [pa.Table.from_pylist(large[start : start + 100], schema=SCHEMA) for start in range(0, 2200, 100)]
    landing.catalog.require("landing.flow").append(pa.concat_tables(parts))
    files = LandedFiles.up_to(BATCH, landing)
    planned = PlannedFiles.of(files, [landed(5, 2200, files.snapshot)])
    assert planned.memory > 2**31, "so that an upsert has several tasks reduce it"
    for one in (planned, replace(planned, files=None)):
        lengths = [pc.binary_length(piece.at(("value", "name"))).to_pylist() for piece in one.in_pieces(5, 5)]
        assert (sum(map(len, lengths)), {*chain(*lengths)}) == (2200, {len(text)})
        assert max(map(len, lengths)) < 1100


def test_files_with_other_columns_are_scanned(landing: Landing) -> None:
    first = widened(landing)
    planned = PlannedFiles.of(LandedFiles.up_to(BATCH, landing), [landed(1, 6, first)])
    assert planned.files is None
    assert planned.read(1, 1).at(["value", "extra"]).to_pylist() == [None] * 6


def test_files_with_other_columns_are_read_one_after_another(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a whole backlog before the first piece is taken."""
    table = landing.catalog.require("landing.flow")
    for n in range(12):
        table.append(pa.Table.from_pylist([row(4, n)], schema=SCHEMA))
    widened(landing)
    files, opened = LandedFiles.up_to(BATCH, landing), list[str]()
    storage, new_input = type(files.storage), type(files.storage).new_input

    def counted(self: FileIO, location: str) -> InputFile:
        opened.extend([location] if location.endswith(".parquet") else [])
        return new_input(self, location)

    monkeypatch.setattr(storage, "new_input", counted)
    pieces = files.in_pieces(of_batches(4, 4), rows=1, memory=1 << 20)
    first = next(pieces)
    assert len(opened) <= 2
    assert first.at(["value", "extra"]).to_pylist() == [None]
    assert sorted(i for piece in [first, *pieces] for i in piece.at(["i"]).to_pylist()) == list(range(12))
    assert len(opened) == 12


def test_parts_of_a_missing_value_are_null(files: LandedFiles) -> None:
    rows = files.read(of_partition(2, 2, P0, OffsetRange(202, 203)))
    assert rows.at(["value", "name"]).to_pylist() == [None]
    assert rows.at(["key", "id"]).to_pylist() == [2]


def test_files_that_are_gone_are_named_and_no_traceback(files: LandedFiles) -> None:
    (newest,) = [s for s in files.metadata.snapshots if s.snapshot_id == files.snapshot]
    Path(newest.manifest_list.removeprefix("file://")).unlink()
    with pytest.raises(StorageError, match=r"landing\.flow"):
        files.read(of_batches(1, 2))


def test_late_batches_have_places_of_their_own() -> None:
    late, early = (LandedSlice.of(pa.Table.from_pylist([row(batch, 1)])) for batch in (2**24 + 1, 1))
    assert len(late.without([early])) == 1
    assert len(late.without([late])) == 0
