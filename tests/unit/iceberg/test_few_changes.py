"""What a merge of few changes does in its one task: the last change of each key, and the rows that it replaces."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs.batch import Counts, LandedBatch, LandedBatches
from jobs.changes.columns import landing_schema
from jobs.changes.landed_rows import LandedSnapshot
from jobs.changes.last_changes import last_of_each
from jobs.changes.reduction import Reduction
from jobs.destinations.iceberg.destination import IcebergDestination
from jobs.destinations.iceberg.few_changes import few_changes
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.iceberg.few_changes_task import FewChangesTask, with_places
from jobs.iceberg.history import state_properties
from jobs.iceberg.key_scan import FILE, POSITION, Keys
from jobs.iceberg.row_delta import RowDelta
from jobs.iceberg.row_delta_task import RowDeltaReport, RowDeltaTask
from jobs.iceberg.schema import iceberg_schema
from resources.iceberg import IcebergCatalog
from tests.kit import batches, specs
from tests.kit.arrow import copied

KEY = pa.schema([("a", pa.int64()), ("b", pa.string())])
FOUND = pa.schema([*KEY, (FILE, pa.string()), (POSITION, pa.int64())])


def random_keys(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    numbers, texts = [None, 1, 2, 3, 2**40], [None, "", "x", "y"]
    return [{"a": numbers[i], "b": texts[j]} for i, j in rng.integers(0, [5, 4], (count, 2)).tolist()]


@pytest.mark.parametrize("count", [0, 1, 40])
def test_the_last_change_of_each_key_stays_in_its_place(count: int) -> None:
    keys = random_keys(np.random.default_rng(count), count)
    found = last_of_each(pa.Table.from_pylist(keys, KEY).columns).to_pylist()
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
        assert {(row["__file"], row["__pos"]) for row in own if row["__hit"]} == {(r[FILE], r[POSITION]) for r in met}
        assert [row["__hit"] for row in own] == (list(range(1, len(met) + 1)) or [0])
        assert [row["__writes"] for row in own] == [op != "delete", *[False] * (len(own) - 1)]
        assert all(row["__removes"] == (row["__hit"] > 0) for row in own)


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

    def snapshot_with(self, newest: LandedBatch) -> LandedSnapshot:
        return LandedSnapshot(newest.snapshot_id, True)

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
        table = self.catalog.require(self.identifier)
        table.append(pa.Table.from_pylist(made, schema))
        snapshot = table.current_snapshot()
        assert snapshot
        counts = Counts(len(rows), len(rows), 0, 0, 0)
        self.known.append(replace(batches.landed(number), counts=counts, snapshot_id=snapshot.snapshot_id))


def _value(key: int, name: str) -> dict[str, Any]:
    return {"id": key, "name": name, "tags": [name]}


def flow(lake: IcebergCatalog, **options: Any) -> tuple[Landing, IcebergDestination, pa.Schema]:
    spec = specs.spec(specs.table(mode="upsert_delete", **options), columns=COLUMNS, key=specs.ID)
    schema = landing_schema(spec)
    lake.create("landing.flow", iceberg_schema(schema))
    (only,) = spec.tables
    assert isinstance(only, IcebergTable)
    destination = IcebergDestination("p", spec, only, lake)
    destination.prepare()
    return Landing(lake), destination, schema


def task_of(landing: Landing, destination: IcebergDestination, delta: RowDelta, first: int) -> FewChangesTask:
    some = landing.known[first - 1 :]
    wanted = Reduction.of_table(destination.spec, destination.table, destination.row_columns, landing, first, some[-1])
    changes, search = few_changes(landing, wanted, some, may_keep=True), delta.search_by(wanted.keys)
    assert changes
    assert search
    write = RowDeltaTask(delta.identifier, delta.files, delta.base_files)
    return copied(FewChangesTask(changes, wanted.keys, False, search, write))


def report_of(told: Iterable[pa.RecordBatch]) -> RowDeltaReport:
    return RowDeltaReport.sum_of([text for batch in told for text in batch["report"].to_pylist()])


def numbers(count: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"id": list(range(count))})]


@pytest.mark.parametrize("layout", [{}, {"partition_by": ["bucket(3, id)"]}], ids=str)
def test_many_batches_leave_what_they_say_in_few_files(
    lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch, layout: dict[str, Any]
) -> None:
    monkeypatch.setattr("jobs.iceberg.folding._FILES_PER_FOLD", 4)
    dice, model, folds, dropped = random.Random(5), dict[int, str](), 0, 0
    landing, destination, schema = flow(lake, **layout)
    for number in range(1, 25):
        rows = [(dice.randrange(30), dice.choice([None, f"{number}", f"{number}"])) for _ in range(12)]
        landing.land(rows, schema)
        before = dict(model)
        for key, name in rows:
            model.pop(key, None) if name is None else model.update({key: name})
        state = batches.committed(number - 1) if number > 1 else None
        delta = RowDelta(lake, destination.table.table, "p", state)

        report = report_of(task_of(landing, destination, delta, number)(numbers(1)))

        delta.add(report.files)
        delta.remove(report.deletes)
        dropped += sum(file["path"] is None for file in report.deletes)
        if fold := delta.fold_task():
            folds += 1
            delta.add(report_of(copied(fold)(numbers(len(fold.groups)))).files)
        after = batches.committed(number)
        delta.publish_append(after.to_properties(), state_properties(after, "main"), rebase=False)
        found = lake.require(destination.table.table).scan().to_arrow().to_pylist()
        assert sorted((r["id"], r["name"], r["tags"]) for r in found) == sorted((k, n, [n]) for k, n in model.items())
        touched = {key for key, _ in rows}
        effect = report.effect
        assert (effect.changes, effect.duplicates) == (len(touched), 0)
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
