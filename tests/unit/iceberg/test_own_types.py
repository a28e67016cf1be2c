"""Tables with columns of `uuid` and `fixed(n)`, whose values are landed as text and bytes."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import FixedType, ListType, LongType, NestedField, StructType, TimeType, UUIDType

from jobs.changes.copy_task import CopyTask, files_to_copy
from jobs.destinations.iceberg.destination import IcebergDestination
from jobs.destinations.takes import fitted
from jobs.iceberg.append import Append
from jobs.iceberg.history import state_properties
from jobs.iceberg.key_search import SHARE, SearchTask
from jobs.iceberg.row_delta import RowDelta
from jobs.iceberg.schema import partition_spec
from jobs.spark.spark_tasks import reports_in
from resources.errors import ConfigurationError, SchemaRefused
from resources.iceberg import IcebergCatalog
from tests.kit import batches, specs
from tests.kit.arrow import copied
from tests.unit.iceberg import test_few_changes
from tests.unit.iceberg.test_few_changes import Landing, numbers, report_of, reported_by, task_of

DECLARED = {"ref": "uuid", "code": "fixed(4)", "n": "long", "of": "struct<ids: array<uuid>>"}
KEY = {"ref": "uuid", "code": "fixed(4)"}
IDS = [uuid.UUID(int=random.Random(7).getrandbits(128) ^ n << 120) for n in range(20)]
THEIRS = Schema(
    NestedField(1, "ref", UUIDType(), required=True),
    NestedField(2, "code", FixedType(4), required=True),
    NestedField(3, "n", LongType()),
    NestedField(4, "of", StructType(NestedField(5, "ids", ListType(6, UUIDType(), element_required=False)))),
    NestedField(7, "more", UUIDType()),
    identifier_field_ids=[1, 2],
)
MERGE_ON_READ = {"format-version": "2", "write.merge.mode": "merge-on-read"}


def code(n: int) -> bytes:
    return n.to_bytes(4, "big")


def of_others(numbers: Sequence[int], schema: pa.Schema) -> pa.Table:
    """Rows as another engine writes them."""

    def ids(of: Iterable[int]) -> pa.Array:
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array([IDS[n].bytes for n in of], pa.binary(16)))

    pairs = pa.ListArray.from_arrays(range(0, 2 * len(numbers) + 1, 2), ids(n for one in numbers for n in (one, 0)))
    columns = {
        "ref": ids(numbers),
        "code": pa.array(map(code, numbers), pa.binary(4)),
        "n": pa.array(numbers),
        "of": pa.StructArray.from_arrays([pairs], ["ids"]),
        "more": ids(numbers),
    }
    return pa.table(columns).cast(schema)


def landed(rows: Sequence[tuple[int, int | None]], schema: pa.Schema, number: int) -> pa.Table:
    """Landed changes of these rows; without a value they are deletes."""
    made = []
    for i, (n, value) in enumerate(rows):
        key = {"ref": str(IDS[n]), "code": code(n)}
        change: dict[str, Any] = {"key": key, "op": "delete", "i": i, "batchNumber": number}
        if value is not None:
            change |= {"op": "upsert", "value": {**key, "n": value, "of": {"ids": [str(IDS[value % 20]), str(IDS[0])]}}}
        made.append(change)
    return pa.Table.from_pylist(made, schema)


def flow(lake: IcebergCatalog, mode: str, **options: Any) -> tuple[Landing, IcebergDestination, pa.Schema]:
    landing, destination, _ = test_few_changes.flow(lake, mode, DECLARED, KEY, **options)
    # As the table has it: without the marks of the file.
    return landing, destination, lake.require("landing.flow").schema().as_arrow()


def rows_of(lake: IcebergCatalog, table: str) -> list[tuple[Any, ...]]:
    found = lake.require(table).scan().to_arrow().to_pylist()
    return sorted((r["ref"], r["code"], r["n"], [*r["of"]["ids"]], r.get("more")) for r in found)


def expected(model: dict[int, int], first: dict[int, uuid.UUID] | None = None) -> list[tuple[Any, ...]]:
    more = first or {}
    return sorted((IDS[n], code(n), value, [IDS[value % 20], IDS[0]], more.get(n)) for n, value in model.items())


@pytest.mark.parametrize(
    ("layout", "share"),
    [("", 1000), ("", 4), ("bucket[3]", 1000), ("identity", 1000)],
)
def test_changes_are_merged_by_keys_of_own_types(
    lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch, layout: str, share: int
) -> None:
    monkeypatch.setattr("jobs.destinations.iceberg.few_changes._SHARE_CHANGES", share)
    monkeypatch.setattr("jobs.iceberg.folding._FILES_PER_FOLD", 4)
    monkeypatch.setattr("jobs.iceberg.folding._LEAST_GONE", 4)
    if layout:
        fields = [PartitionField(n, 1000 + n, parse_transform(layout), f"p{n}") for n in (1, 2)]
        lake.create("n.t", THEIRS, PartitionSpec(*fields), MERGE_ON_READ)
    landing, destination, schema = flow(lake, "upsert_delete")
    assert [str(f.field_type) for f in lake.require("n.t").schema().fields[:2]] == ["uuid", "fixed[4]"]
    assert _merged_in_turns(lake, landing, destination, schema, {}) or layout


def test_a_table_that_others_made_and_filled_is_continued(
    lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.iceberg.folding._FILES_PER_FOLD", 4)
    monkeypatch.setattr("jobs.iceberg.folding._LEAST_GONE", 4)
    theirs = lake.create("n.t", THEIRS, properties=MERGE_ON_READ)
    before = {n: n for n in range(10)}
    theirs.append(of_others(list(before), theirs.schema().as_arrow()))
    landing, destination, schema = flow(lake, "upsert_delete")
    assert lake.require("n.t").schema() == theirs.schema()
    assert _merged_in_turns(lake, landing, destination, schema, before)


def _merged_in_turns(
    lake: IcebergCatalog, landing: Landing, destination: IcebergDestination, schema: pa.Schema, model: dict[int, int]
) -> int:
    """How often files were folded."""
    dice, folds = random.Random(5), 0
    own = {n: IDS[n] for n in model}
    for turn in range(1, 10):
        rows = [(dice.randrange(20), dice.choice([None, turn, turn])) for _ in range(12)]
        landing.add(landed(rows, schema, turn))
        before = dict(model)
        for n, value in rows:
            model.pop(n, None) if value is None else model.update({n: value})
            own.pop(n, None)
        delta = RowDelta(lake, "n.t", "p", batches.committed(turn - 1) if turn > 1 else None)
        report = report_of(reported_by(task_of(landing, destination, delta, turn, leaves_unchanged=False)))
        delta.add(report.files)
        delta.remove(report.deletes)
        if fold := delta.fold_task():
            folds += 1
            delta.fold(fold, report_of(copied(fold)(numbers(len(fold.groups)))).files)
        after = batches.committed(turn)
        delta.publish_append(after.to_properties(), state_properties(after, "main"), rebase=False)
        assert rows_of(lake, "n.t") == expected(model, own)
        touched = {n for n, _ in rows}
        assert report.counts.deleted == len(touched & before.keys() - model.keys())
        assert report.counts.updated == len(touched & model.keys() & before.keys())
    return folds


def test_spark_gets_the_found_keys_as_they_are_landed(lake: IcebergCatalog) -> None:
    theirs = lake.create("n.t", THEIRS, properties=MERGE_ON_READ)
    theirs.append(of_others(range(10), theirs.schema().as_arrow()))
    delta = RowDelta(lake, "n.t", "p", None)
    search = delta.search_by(["ref", "code"], ["more", "of"])
    assert search
    keys = pa.table({"ref": [str(IDS[n]) for n in (3, 15)], "code": [code(n) for n in (3, 15)], SHARE: [0, 0]})
    found = list(copied(SearchTask({0: search}))(keys.to_batches()))
    assert {batch.schema for batch in found} == {search.landed}
    ((row,),) = [batch.to_pylist() for batch in found]
    assert (row["ref"], row["code"], row["more"]) == (str(IDS[3]), code(3), str(IDS[3]))
    assert row["of"] == {"ids": [str(IDS[3]), str(IDS[0])]}


def test_rows_are_copied_into_an_append_table(lake: IcebergCatalog) -> None:
    theirs = lake.create("n.t", THEIRS)
    landing, destination, schema = flow(lake, "append")
    landing.add(landed([(n, n) for n in range(20)], schema, 1))
    append = Append(lake, "n.t", "p", None)
    wanted = destination.reductions(landing).merge(1, landing.known[-1])
    files = files_to_copy(landing, wanted, landing.known)
    assert files
    task = CopyTask(files, 1, 1, {c.name: c.path for c in wanted.columns}, append.files, 1)
    for written in reports_in(copied(task)(numbers(1))):
        append.add(written)
    after = batches.committed(1)
    append.publish_append(after.to_properties(), state_properties(after, "main"), rebase=True)
    assert rows_of(lake, "n.t") == expected({n: n for n in range(20)})
    assert lake.require("n.t").schema().fields[:5] == theirs.schema().fields


def test_text_is_not_taken_for_a_uuid(lake: IcebergCatalog) -> None:
    lake.create("n.t", THEIRS)
    spec = specs.spec(specs.table(mode="append"), columns={**DECLARED, "ref": "string"}, key={**KEY, "ref": "string"})
    with pytest.raises(SchemaRefused, match="column ref is uuid in the table and string in the file"):
        IcebergDestination("p", spec, spec.tables[0], lake).prepare()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "columns", "properties", "partition"),
    [
        ("append", {"n": "long", "at": "time"}, {}, []),
        ("append", {"n": "long"}, {}, ["n"]),
        ("upsert", {"n": "long"}, {}, []),
        ("upsert_delete", {"n": "long"}, MERGE_ON_READ, []),
    ],
)
def test_a_table_that_spark_cannot_read_is_refused(
    lake: IcebergCatalog, mode: str, columns: dict[str, str], properties: dict[str, str], partition: list[str]
) -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "at", TimeType()))
    lake.create("n.t", schema, partition_spec(schema, partition), properties)
    spec = specs.spec(specs.table(mode=mode), columns=columns, key={"n": "long"})
    destination = IcebergDestination("p", spec, spec.tables[0], lake)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="at is of Iceberg's type time, and Spark") as refused:
        destination.prepare(dry_run=True)
    assert "Trino" in refused.value.remedy


def test_few_changes_are_merged_beside_times(lake: IcebergCatalog, caplog: pytest.LogCaptureFixture) -> None:
    """Without Spark SQL, as by earlier versions: who merges into such a table already goes on."""
    landing, destination, schema = flow(lake, "upsert_delete", properties=MERGE_ON_READ)
    assert _merged_in_turns(lake, landing, destination, schema, {}) >= 0
    with lake.require("n.t").update_schema() as change:
        change.add_column("at", TimeType())
    destination.prepare()
    assert "at is of Iceberg's type time" in caplog.text
    landing.add(landed([(n, 50) for n in range(20)], schema, 10))
    delta = RowDelta(lake, "n.t", "p", batches.committed(9))
    report = report_of(reported_by(task_of(landing, destination, delta, 10, leaves_unchanged=False)))
    delta.add(report.files)
    delta.remove(report.deletes)
    after = batches.committed(10)
    delta.publish_append(after.to_properties(), state_properties(after, "main"), rebase=False)
    assert rows_of(lake, "n.t") == expected(dict.fromkeys(range(20), 50))


def test_a_table_whose_partitions_spark_would_mix_up_is_refused(lake: IcebergCatalog) -> None:
    lake.create("n.t", THEIRS, PartitionSpec(PartitionField(1, 1000, parse_transform("bucket[3]"), "ref_bucket")))
    with pytest.raises(ConfigurationError, match=r"partitioned by UUIDs \(ref_bucket\)"):
        flow(lake, "upsert")


def test_a_table_into_which_rows_are_only_copied_may_have_times(lake: IcebergCatalog) -> None:
    lake.create("n.t", Schema(NestedField(1, "n", LongType()), NestedField(2, "at", TimeType())))
    spec = specs.spec(specs.table(mode="append"), columns={"n": "long"})
    destination = IcebergDestination("p", spec, spec.tables[0], lake)  # type: ignore[arg-type]
    destination.prepare()
    takes = {"iceberg n.t": destination.takes(["at"])}
    with pytest.raises(ConfigurationError, match="no type of a column"):
        fitted(pa.string(), ("at",), takes)


def test_a_declared_time_is_text(lake: IcebergCatalog) -> None:
    columns = {"at": "time", "of": "struct<at: time, id: uuid>"}
    spec = specs.spec(specs.table(mode="append", metadata_columns=[]), columns=columns)
    IcebergDestination("p", spec, spec.tables[0], lake).prepare()  # type: ignore[arg-type]
    at, of = lake.require("n.t").schema().fields
    assert str(at.field_type) == "string"
    assert isinstance(of.field_type, StructType)
    assert [str(f.field_type) for f in of.field_type.fields] == ["string", "uuid"]
