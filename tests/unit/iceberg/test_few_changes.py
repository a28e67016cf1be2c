"""What a merge of few changes does in its tasks: the last change of each key, and the rows that it replaces."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from jobs.batch import Counts, LandedBatch, LandedBatches
from jobs.changes.columns import landing_schema
from jobs.changes.few_changes_task import FewChangesTask, with_places
from jobs.changes.files import LandedSlice
from jobs.changes.key_shares_task import DeletesTask, NewRowsTask, PartsTask
from jobs.changes.last_changes import LastChanges, last_of_each, share_of_each
from jobs.destinations.iceberg.cached_changes import writers
from jobs.destinations.iceberg.destination import IcebergDestination
from jobs.destinations.iceberg.few_changes import few_changes
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.iceberg.history import state_properties
from jobs.iceberg.key_search import FILE, POSITION
from jobs.iceberg.keys import Keys
from jobs.iceberg.row_delta import RowDelta
from jobs.iceberg.row_delta_task import RowDeltaReport, RowDeltaTask
from jobs.iceberg.schema import iceberg_schema
from jobs.spark.spark_tasks import reports_in
from resources.iceberg import IcebergCatalog
from tests.kit import batches, specs
from tests.kit.arrow import copied

TWO_CORES = partial(int, 2)
KEY = pa.schema([("a", pa.int64()), ("b", pa.string())])
FOUND = pa.schema([*KEY, (FILE, pa.string()), (POSITION, pa.int64())])


def random_keys(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    numbers, texts = [None, 1, 2, 3, 2**40], [None, "", "x", "y"]
    return [{"a": numbers[i], "b": texts[j]} for i, j in rng.integers(0, [5, 4], (count, 2)).tolist()]


@pytest.mark.parametrize("count", [0, 1, 40])
def test_the_last_change_of_each_key_stays_in_its_place(count: int) -> None:
    keys = random_keys(np.random.default_rng(count), count)
    found = last_of_each([c.combine_chunks() for c in pa.Table.from_pylist(keys, KEY).columns]).to_pylist()
    assert found == sorted({tuple(key.values()): n for n, key in enumerate(keys)}.values())


@pytest.mark.parametrize("null_safe", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_each_change_meets_the_rows_of_its_key(seed: int, null_safe: bool) -> None:
    rng = np.random.default_rng(seed)
    different = {tuple(key.values()): key for key in random_keys(rng, 12)}
    ops = [str(op) for op in rng.choice(["delete", "upsert"], len(different))]
    changes = pa.Table.from_pylist([{**key, "__op": op} for key, op in zip(different.values(), ops, strict=True)])
    changes = changes.cast(pa.schema([*KEY, ("__op", pa.string())]))
    keys = Keys(changes.select(KEY.names))
    table = pa.Table.from_pylist(random_keys(rng, 30), KEY)
    places = keys.places_in(table.columns)
    rows = [{**table.slice(n, 1).to_pylist()[0], FILE: f"f{n % 3}", POSITION: n} for n in places.tolist()]
    assert {(row["a"], row["b"]) for row in rows} == set(different) & {tuple(r.values()) for r in table.to_pylist()}

    given = with_places(changes, keys, pa.Table.from_pylist(rows, FOUND), null_safe).to_pylist()

    for key, op in zip(different, ops, strict=True):
        own = [row for row in given if (row["a"], row["b"]) == key]
        met = [row for row in rows if (row["a"], row["b"]) == key and (null_safe or None not in key)]
        assert {(row["__bm_file"], row["__bm_pos"]) for row in own if row["__hit"]} == {
            (r[FILE], r[POSITION]) for r in met
        }
        assert [row["__hit"] for row in own] == (list(range(1, len(met) + 1)) or [0])
        assert [row["__bm_writes"] for row in own] == [op != "delete", *[False] * (len(own) - 1)]
        assert all(row["__bm_removes"] == (row["__hit"] > 0) for row in own)


def test_numbers_of_wide_keys_stay_exact() -> None:
    """Five columns of so many values have more combinations than a number of 64 bits."""
    count = 20_000
    columns = [np.random.default_rng(n).permutation(count) for n in range(5)]
    keys = Keys(pa.table({str(n): column for n, column in enumerate(columns)}))
    assert sorted(keys.number(keys.rows.columns)) == list(range(count))
    assert len(keys.places_in([pa.array(column[::-1].copy()) for column in columns])) == count
    assert not len(keys.places_in([pa.array(columns[0]), *[pa.array(np.roll(column, 1)) for column in columns[1:]]]))


COLUMNS = {"id": "long", "name": "string", "tags": "array<string>"}


@dataclass
class Landing:
    """Landed batches as a destination sees them."""

    catalog: IcebergCatalog
    identifier: str = "landing.flow"
    path: tuple[str, ...] = ("lake", "landing", "flow")
    known: list[LandedBatch] = field(default_factory=list)

    def landed(self) -> LandedBatches:
        return LandedBatches(self.known)

    def snapshot_with(self, newest: LandedBatch) -> int:
        return newest.snapshot_id

    def land(self, rows: Sequence[tuple[int, str | None]], schema: pa.Schema, kept: list[str] | None = None) -> None:
        """A batch of these ids with their names; without one it is a delete."""
        number = len(self.known) + 1
        more = {"batchNumber": number, **({"kept": kept} if kept else {})}
        made = [
            {"key": {"id": key}, "op": "delete", "i": i, **more}
            if name is None
            else {
                "key": {"id": key},
                "value": {"id": key, "name": name, "tags": [name]},
                "op": "upsert",
                "i": i,
                **more,
            }
            for i, (key, name) in enumerate(rows)
        ]
        self.add(pa.Table.from_pylist(made, schema))

    def add(self, rows: pa.Table) -> None:
        """A batch of these landed rows."""
        table, number = self.catalog.require(self.identifier), len(self.known) + 1
        table.append(rows)
        snapshot = table.current_snapshot()
        assert snapshot
        counts = Counts(len(rows), len(rows), 0, 0, 0)
        self.known.append(replace(batches.landed(number), counts=counts, snapshot_id=snapshot.snapshot_id))


def _value(key: int, name: str) -> dict[str, Any]:
    return {"id": key, "name": name, "tags": [name]}


def flow(
    lake: IcebergCatalog,
    mode: str = "upsert_delete",
    columns: dict[str, str] = COLUMNS,
    key: dict[str, Any] = specs.ID,
    **options: Any,
) -> tuple[Landing, IcebergDestination, pa.Schema]:
    spec = specs.spec(specs.table(mode=mode, **options), columns=columns, key=key)
    schema = landing_schema(spec)
    lake.create("landing.flow", iceberg_schema(schema))
    only = specs.entry(spec, IcebergTable)
    destination = IcebergDestination("p", spec, only, lake)
    destination.prepare()
    return Landing(lake), destination, schema


def task_of(
    landing: Landing, destination: IcebergDestination, delta: RowDelta, first: int, leaves_unchanged: bool = True
) -> FewChangesTask:
    some = landing.known[first - 1 :]
    wanted = destination.reductions(landing).merge(first, some[-1])
    changes, search = few_changes(landing, wanted, some, leaves_unchanged, TWO_CORES), delta.search_by(wanted.keys)
    assert changes
    assert search
    write = RowDeltaTask(delta.files, delta.base_files)
    return copied(FewChangesTask(changes, wanted.keys, False, search, write))


def reported_by(task: FewChangesTask) -> Iterator[pa.RecordBatch]:
    """What the tasks of a merge report. The first of several shares runs twice: what it sent at first is lost."""
    if task.changes.shares == 1:
        yield from task(numbers(1))
        return
    first, last = NewRowsTask(task), DeletesTask(task.write)
    given = [sent_to(task, share) if task.changes.readers else number(share) for share in range(task.changes.shares)]
    list(first(given[0]))
    yield from last([batch for one in given for batch in first(one)])


def sent_to(task: FewChangesTask, share: int) -> list[pa.RecordBatch]:
    """What the readers find for a share."""
    readers = task.changes.readers
    read = PartsTask(task, readers, tuple(range(task.changes.shares)))
    found = [part for reader in range(readers) for part in read(number(reader))]
    return [part for part in found if part["share"][0].as_py() == share]


def number(n: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"id": [n]})]


def report_of(reported: Iterable[pa.RecordBatch]) -> RowDeltaReport:
    return sum(reports_in(reported), RowDeltaReport())


def numbers(count: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"id": list(range(count))})]


BUCKETS = {"partition_by": ["bucket(3, id)"]}


@pytest.mark.parametrize(
    ("layout", "share", "opened"),
    [
        *(({}, share, opened) for share, opened in ((1000, 0), (5, 100), (5, 0))),
        (BUCKETS, 5, 0),
        # How changes are shared does not meet the layout.
        *(pytest.param(BUCKETS, share, opened, marks=pytest.mark.slow) for share, opened in ((1000, 0), (5, 100))),
    ],
)
def test_many_batches_leave_what_they_say_in_few_files(
    lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch, layout: dict[str, Any], share: int, opened: int
) -> None:
    monkeypatch.setattr("jobs.destinations.iceberg.few_changes._SHARE_CHANGES", share)
    monkeypatch.setattr("jobs.destinations.iceberg.few_changes._OPENED_BY_EACH", opened)
    monkeypatch.setattr("jobs.iceberg.folding._FILES_PER_FOLD", 4)
    dice, model, folds, dropped = random.Random(5), dict[int, str](), 0, 0
    landing, destination, schema = flow(lake, **layout)
    for turn in range(1, 25):
        rows = [(dice.randrange(30), dice.choice([None, f"{turn}", f"{turn}"])) for _ in range(12)]
        landing.land(rows, schema)
        before = dict(model)
        for key, name in rows:
            model.pop(key, None) if name is None else model.update({key: name})
        state = batches.committed(turn - 1) if turn > 1 else None
        delta = RowDelta(lake, destination.table.table, "p", state)

        task = task_of(landing, destination, delta, turn, leaves_unchanged=False)
        assert task.changes.shares == (3 if share == 5 else 1)
        report = report_of(reported_by(task))

        delta.add(report.files)
        delta.remove(report.deletes)
        dropped += sum(file.path is None for file in report.deletes)
        if fold := delta.fold_task():
            folds += 1
            delta.fold(fold, report_of(copied(fold)(numbers(len(fold.groups)))).files)
        after = batches.committed(turn)
        delta.publish_append(after.to_properties(), state_properties(after, "main"), rebase=False)
        found = lake.require(destination.table.table).scan().to_arrow().to_pylist()
        assert sorted((r["id"], r["name"], r["tags"]) for r in found) == sorted((k, n, [n]) for k, n in model.items())
        touched = {key for key, _ in rows}
        effect = report.counts
        assert (effect.changes, report.duplicates) == (len(touched), 0)
        assert effect.inserted == len(touched & model.keys() - before.keys())
        assert effect.updated == len(touched & model.keys() & before.keys())
        assert effect.deleted == len(touched & before.keys() - model.keys())
        assert destination.read(None).known_count() == len(model)  # type: ignore[arg-type]
    assert folds
    assert dropped
    snapshot = lake.require(destination.table.table).current_snapshot()
    assert snapshot
    assert len(snapshot.manifests(lake.require(destination.table.table).io)) < 12, "they do not pile up"


def test_changes_that_keep_columns_are_left_to_spark(lake: IcebergCatalog) -> None:
    landing, destination, schema = flow(lake)
    kept = pa.field("kept", pa.list_(pa.field("element", pa.string())))
    with lake.require("landing.flow").update_schema() as update:
        update.union_by_name(iceberg_schema(schema.append(kept)))
    landing.land([(1, "a")], schema.append(kept), ["name"])
    delta = RowDelta(lake, destination.table.table, "p", None)
    assert list(task_of(landing, destination, delta, 1)(numbers(1))) == []


def test_changes_in_shares_cannot_keep_columns(lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a task finds that they do, others have written."""
    monkeypatch.setattr("jobs.destinations.iceberg.few_changes._SHARE_CHANGES", 1)
    landing, destination, schema = flow(lake)
    landing.land([(1, "a"), (2, "b")], schema)
    wanted = destination.reductions(landing).merge(1, landing.known[-1])
    assert few_changes(landing, wanted, landing.known, True, TWO_CORES) is None
    assert few_changes(landing, wanted, landing.known, False, TWO_CORES)


@pytest.mark.parametrize(("cores", "shares"), [(2, None), (39, None), (40, 80), (100, 80)])
def test_a_larger_cluster_merges_more_changes_in_shares(lake: IcebergCatalog, cores: int, shares: int | None) -> None:
    landing, destination, schema = flow(lake)
    landing.land([(1, "a")], schema)
    many = [replace(one, counts=Counts(20_000_000, 20_000_000, 0, 0, 0)) for one in landing.known]
    wanted = destination.reductions(landing).merge(1, many[-1])
    found = few_changes(landing, wanted, many, False, lambda: cores)
    assert (found and found.shares) == shares
    assert found is None or found.readers, "so many shares do not read all files each"


def test_a_large_merge_needs_no_large_cluster(lake: IcebergCatalog) -> None:
    """Spark SQL would take several times as long."""
    landing, destination, schema = flow(lake)
    landing.land([(1, "a")], schema)
    many = [replace(one, counts=Counts(5_000_000, 5_000_000, 0, 0, 0)) for one in landing.known]
    wanted = destination.reductions(landing).merge(1, many[-1])
    found = few_changes(landing, wanted, many, False, lambda: pytest.fail("asked"))
    assert found
    assert (found.shares, found.readers > 0) == (20, True)


def test_no_cores_are_asked_for_where_few_shares_are_enough(lake: IcebergCatalog) -> None:
    """A merge in one task has no session."""
    landing, destination, schema = flow(lake)
    landing.land([(1, "a")], schema)
    wanted = destination.reductions(landing).merge(1, landing.known[-1])
    assert few_changes(landing, wanted, landing.known, False, lambda: pytest.fail("asked"))


@pytest.mark.parametrize(("cores", "places"), [(2, 64), (32, 64), (100, 200)])
def test_new_rows_are_spread_over_all_cores(cores: int, places: int) -> None:
    assert writers(cores) == places


KEY_TYPES = [
    pa.array([3, None, 2**40, -3, 3, 2**40, None, -3]),
    pa.array(["x", None, "", "日本", "x", "", None, "日本"]),
    pa.array([b"\xff", None, b"", b"\x00", b"\xff", b"", None, b"\x00"]),
    pa.array([b"\xff\x01", None, b"\x01\x02", b"\x00\x00"] * 2, pa.binary(2)),
    pa.array([True, False, None, True] * 2),
    pa.array([Decimal("1.50"), None, Decimal("-2.00"), Decimal("0.01")] * 2),
    pa.array([1, None, 2, 3] * 2, pa.date32()),
    pa.array([1, None, 2, 3] * 2, pa.timestamp("us", "UTC")),
]


@pytest.mark.parametrize("column", KEY_TYPES, ids=lambda column: str(column.type))
def test_equal_keys_are_in_one_share_wherever_they_stand(column: pa.Array) -> None:
    second = pa.array([0, 0, 1, None, 0, 1, 0, None])
    for shares in (1, 2, 7):
        whole = share_of_each([column, second], shares)
        of_key = dict(zip(zip(column.to_pylist(), second.to_pylist(), strict=True), whole.tolist(), strict=True))
        for n in range(len(column)):
            (alone,) = share_of_each([column.slice(n, 1), second.slice(n, 1)], shares)
            assert of_key[column[n].as_py(), second[n].as_py()] == alone == whole[n] < shares


@pytest.mark.parametrize("keys", [pa.array(range(10_000)), pa.array(f"order-{n}" for n in range(10_000))], ids=str)
def test_keys_are_spread_over_all_shares(keys: pa.Array) -> None:
    assert min(np.bincount(share_of_each([keys], 8)).tolist()) > 1000


@pytest.mark.parametrize(
    ("files", "rows", "shares", "too_much"),
    [
        (1, 45_000_000, 2, False),
        (1, 45_000_000, 8, False),
        (1, 45_000_000, 40, True),
        (1, 51_000_000, 2, True),
        (5_000, 1_000, 2, False),
        (5_000, 1_000, 64, True),
    ],
)
def test_table_of_which_many_shares_would_scan_much_is_joined(
    files: int, rows: int, shares: int, too_much: bool
) -> None:
    search, changes = Mock(files=[Mock()] * files, file_rows=rows * files), Mock(shares=shares)
    assert FewChangesTask(changes, ("id",), False, search, Mock()).scans_too_much is too_much


def shared(lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch, keys: Sequence[int]) -> LastChanges:
    """Changes of these keys, for three shares."""
    monkeypatch.setattr("jobs.destinations.iceberg.few_changes._SHARE_CHANGES", len(keys) / 3)
    landing, destination, schema = flow(lake)
    landing.land([(key, f"{n}") for n, key in enumerate(keys)], schema)
    delta = RowDelta(lake, destination.table.table, "p", None)
    changes = task_of(landing, destination, delta, 1, leaves_unchanged=False).changes
    assert changes.shares == 3
    return changes


def test_a_key_that_changes_often_does_not_fill_a_share(lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many its changes are, they all fall to one share: the last of each piece is kept."""
    changes, joined = shared(lake, monkeypatch, [7] * 12), list[int]()
    found = [rows for _, rows in changes.parted(0, 1)]
    assert [row["value"]["name"] for rows in found for row in rows.to_pylist()] == ["11"]
    whole = LandedSlice.joined

    def join(slices: Iterable[LandedSlice]) -> LandedSlice:
        joined.append(len(result := whole(slices)))
        return result

    monkeypatch.setattr(LandedSlice, "joined", join)
    assert [row["name"] for share in range(3) for row in changes.read_share(share).to_pylist()] == ["11"]
    assert sorted(joined) == [0, 0, 1]


def test_a_share_looks_for_the_last_changes_of_its_own_keys(
    lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All keys in each share would cost as much more as there are shares."""
    changes, looked = shared(lake, monkeypatch, range(60)), list[int]()

    def last(keys: Sequence[pa.Array]) -> pa.Array:
        looked.append(len(keys[0]))
        return last_of_each(keys)

    monkeypatch.setattr("jobs.changes.last_changes.last_of_each", last)
    assert sum(len(changes.read_share(share)) for share in range(3)) == 60
    assert sum(looked) == 2 * 60
