"""What happens to Iceberg tables from outside: other writers, files of others, tasks that run twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import NestedField, StringType, StructType, UUIDType
from pyspark.sql import DataFrame, SparkSession

from jobs.destinations.iceberg import destination as iceberg_destination
from jobs.destinations.iceberg.cached_changes import CachedChanges
from jobs.destinations.row_values import RowValues
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.schema import iceberg_schema
from jobs.landing.batch_records import BatchRecords
from jobs.landing.task_report import TaskReport
from jobs.verify.judged_rows import Judged, judged
from jobs.verify.reconciliation import reconcile
from resources.connections import Connections
from resources.errors import CommitFailed, InvariantBroken
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.records import Record, put
from tests.kit.story import COORDINATES


@pytest.fixture
def engine(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> Callable[..., Engine]:
    def make(*modes: str, **options: object) -> Engine:
        return Engine(Flow(topic(), list(modes), **options), connections, spark)  # type: ignore[arg-type]

    return make


def with_columns(engine: Engine, **value: str | None) -> Engine:
    columns = {**engine.document["source"]["value"]["columns"], **value}
    return engine.with_value(columns={name: kind for name, kind in columns.items() if kind})


# ---- other writers --------------------------------------------------------------------------------------------------

THEIRS = pa.table({"id": pa.array([99], pa.int64()), "name": ["theirs"], "amount": [9.0]})


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], None]], list[str]]:
    """Does something once when the merge stands at a boundary; the boundaries that were reached are listed."""

    def arrange(point: str, act: Callable[[], None]) -> list[str]:
        seen: list[str] = []

        def failpoint(name: str) -> None:
            seen.append(name)
            if name == point and seen.count(name) == 1:
                act()

        monkeypatch.setattr(iceberg_destination, "failpoint", failpoint)
        return seen

    return arrange


def test_append_is_rebased_on_another_writer(
    engine: Callable[..., Engine], meanwhile: Callable[[str, Callable[[], None]], list[str]]
) -> None:
    one = engine("append")
    table = one.flow.table("append")
    written: set[str] = set()

    def append() -> None:
        found = catalog(one.connections).require(table)
        # No snapshot has them yet.
        written.update(path.name for path in Path(found.location().removeprefix("file://")).rglob("*.parquet"))
        found.append(THEIRS.cast(found.schema().as_arrow()))

    one.produce(put(1), put(2))
    seen = meanwhile("merge.written", append)
    one.advance()
    assert seen == ["merge.begun", "merge.written", "merge.published"], "one attempt is enough"
    assert one.read("append") == [(1, "a", 1.0), (2, "a", 1.0), (99, "theirs", 9.0)]
    files = {Path(f.file.file_path).name for f in catalog(one.connections).require(table).scan().plan_files()}
    assert written
    assert written < files, "the files of the attempt were taken over as they are"


def test_rows_are_audited_on_a_branch_before_main_has_them(engine: Callable[..., Engine], spark: SparkSession) -> None:
    """As docs/pipeline-file.md says it, "Audit before publishing"."""
    modes = ["append", "upsert_delete"]
    one = engine(*modes).with_table_options(branch="audit", metadata_columns=COORDINATES)

    def published() -> None:
        for mode in modes:
            spark.sql(f"CALL lake.system.fast_forward('{one.flow.table(mode)}', 'main', 'audit')").collect()

    one.produce(put(1), put(2))
    one.advance()
    assert [one.read(mode) for mode in modes] == [[], []]
    published()
    both = [(1, "a", 1.0), (2, "a", 1.0)]
    assert [one.read(mode) for mode in modes] == [both, both]
    one.produce(put(2, name="b"), put(3))
    one.advance()
    assert [one.read(mode) for mode in modes] == [both, both]
    published()
    assert one.read("append") == [*both, (2, "b", 1.0), (3, "a", 1.0)]
    assert one.read("upsert_delete") == [(1, "a", 1.0), (2, "b", 1.0), (3, "a", 1.0)]
    assert [done.number for done in one.land()] == []


@pytest.mark.parametrize("write", ["merge_on_read", "copy_on_write"])
def test_columns_of_a_type_that_a_file_cannot_have_are_null_in_later_rows(
    engine: Callable[..., Engine], write: str
) -> None:
    modes = ("append", "upsert_delete")
    one = engine(*modes).with_table_options(write=write, partition_by=["bucket(3, id)"], metadata_columns=COORDINATES)
    one.produce(put(1), put(2))
    one.advance()
    tables = catalog(one.connections)
    for mode in modes:
        with tables.require(one.flow.table(mode)).update_schema() as update:
            update.add_column("theirs", UUIDType())
            update.add_column("more", StructType(NestedField(99, "theirs", UUIDType(), required=False)))
    one.produce(put(1, "b"), put(3))
    one.advance()
    for mode in modes:
        assert one.replay(mode, 1, 2)
        found = tables.require(one.flow.table(mode)).scan().to_arrow()
        assert sorted(found["id"].to_pylist()) == ([1, 1, 2, 3] if mode == "append" else [1, 2, 3])
        assert found["theirs"].null_count == found["more"].null_count == len(found)


@pytest.mark.parametrize("write", ["merge_on_read", "copy_on_write"])
def test_nested_field_that_somebody_adds_is_null_in_later_rows(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    # As where there are many changes: Spark SQL reduces them.
    monkeypatch.setattr("jobs.destinations.iceberg.few_changes.are_too_many", lambda *_: True)
    modes = ("append", "upsert_delete")
    options = {"write": write, "partition_by": ["bucket(3, id)"], "metadata_columns": COORDINATES}
    one = with_columns(
        engine(*modes).with_table_options(**options),
        place="struct<city: string>",
        stops="array<struct<at: string>>",
        by="map<string, struct<at: string>>",
    )
    one.produce(put(1, place={"city": "a"}, stops=[{"at": "x"}], by={"k": {"at": "x"}}), put(2))
    one.advance()
    for mode in modes:
        with catalog(one.connections).require(one.flow.table(mode)).update_schema() as update:
            for path in (("place", "zip"), ("stops", "element", "zip"), ("by", "value", "zip")):
                update.add_column(path, StringType())
    one.produce(put(1, "b", place={"city": "b"}, stops=[{"at": "y"}], by={"k": {"at": "y"}}), put(3, place={}))
    one.advance()
    newest = (1, {"city": "b", "zip": None}, [{"at": "y", "zip": None}], [("k", {"at": "y", "zip": None})])
    for mode in modes:
        for _ in range(2):
            found = catalog(one.connections).require(one.flow.table(mode)).scan().to_arrow().to_pylist()
            assert len(found) == (4 if mode == "append" else 3)
            assert newest in [(row["id"], row["place"], row["stops"], row["by"]) for row in found]
            assert {row["id"]: row["place"] for row in found}[2] is None
            assert reconcile(one.pipeline, one.destination(mode), 0).wrong == []
            assert one.replay(mode, 1, 2)


@pytest.mark.parametrize("write", ["merge_on_read", "copy_on_write"])
def test_merge_runs_again_on_another_writer(
    engine: Callable[..., Engine], meanwhile: Callable[[str, Callable[[], None]], list[str]], write: str
) -> None:
    one = engine("upsert_delete").with_table_options(write=write)
    table = one.flow.table("upsert_delete")

    def append() -> None:
        found = catalog(one.connections).require(table)
        found.append(THEIRS.cast(found.schema().as_arrow()))

    one.produce(put(1), put(99, "ours"))
    seen = meanwhile("merge.written", append)
    one.advance()
    assert seen.count("merge.begun") == 2
    assert one.read("upsert_delete") == [(1, "a", 1.0), (99, "ours", 1.0)], "their row was there when ours was merged"


@pytest.mark.parametrize("opened", [100, 0], ids=["few files", "many files"])
def test_several_tasks_merge_a_share_of_the_keys_each(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, opened: int
) -> None:
    monkeypatch.setattr("jobs.destinations.iceberg.few_changes._OPENED_BY_EACH", opened)
    monkeypatch.setattr("jobs.destinations.iceberg.few_changes._SHARE_CHANGES", 15)
    monkeypatch.setattr("jobs.destinations.iceberg.cached_changes.CachedChanges.write_to", None)
    one, model, dice = engine("upsert_delete"), dict[int, str](), random.Random(3)
    for turn in range(4):
        changes = [(dice.randrange(90), dice.choice([None, f"{turn}-{n}"])) for n in range(75)]
        one.produce(*(put(key, name) if name else Record(0, key, None) for key, name in changes))
        model |= {key: name for key, name in changes if name}
        for key in {key for key, name in dict(changes).items() if name is None}:
            model.pop(key, None)
        one.advance()
        assert one.read("upsert_delete") == [(key, model[key], 1.0) for key in sorted(model)]
    found = catalog(one.connections).require(one.flow.table("upsert_delete")).scan().plan_files()
    assert max(len(task.delete_files) for task in found) == 1, "a data file has one file of deletes"


@pytest.mark.parametrize("most", [0, 1000])
def test_more_changes_than_one_task_reads_are_reduced_by_spark_and_more_keys_than_are_scanned_for_joined(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    one = engine("upsert_delete")
    one.produce(put(1), put(2), put(3))
    one.advance()
    monkeypatch.setattr("jobs.destinations.iceberg.few_changes.are_too_many", lambda *_: True)
    monkeypatch.setattr("jobs.destinations.iceberg.cached_changes._SCANNED_KEYS", most)
    one.produce(put(2, "b"), Record(0, 1, None), put(4))
    one.advance()
    assert one.read("upsert_delete") == [(2, "b", 1.0), (3, "a", 1.0), (4, "a", 1.0)]


def test_run_that_sleeps_between_two_statements_commits_its_own_changes(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer run in the same session has more batches, and has not committed yet."""
    one = engine("upsert_delete")
    one.produce(put(1), put(2))
    one.advance()
    monkeypatch.setattr("jobs.destinations.iceberg.few_changes.are_too_many", lambda *_: True)
    asleep: list[object] = []

    def keep_deletes(self: CachedChanges) -> None:
        asleep.append(self)
        if len(asleep) == 2:
            raise EOFError("the newer run dies here")
        one.produce(put(1, "c"), put(2, "c"))
        one.land()
        with pytest.raises(EOFError):
            one.merge("upsert_delete")

    with monkeypatch.context() as patch:
        patch.setattr(CachedChanges, "_keep_deletes", keep_deletes)
        one.produce(put(1, "b"), put(2, "b"))
        one.advance()
    assert one.read("upsert_delete") == [(1, "b", 1.0), (2, "b", 1.0)]
    assert [t.name for t in one.spark.catalog.listTables() if t.name.startswith("batchmerge_changes")] == []


def test_merge_that_was_given_up_disturbs_none_that_follows(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time limit is over, and it goes on in the Spark session in which the next attempt merges the same batches."""
    one = engine("upsert_delete").with_table_options(write="copy_on_write")
    one.produce(put(1), put(2))
    one.advance()
    one.produce(put(1, "b"), Record(0, 2, None), put(3))
    one.land()
    render, asleep, awake = CachedChanges._render, threading.Event(), threading.Event()

    def statement(self: CachedChanges, template: str, *given: Any, **more: Any) -> str:
        if template == "merge" and not asleep.is_set():
            asleep.set()
            assert awake.wait(600)
        elif template == "merge" and not awake.is_set():
            awake.set()
            assert given_up.exception() is None
        return render(self, template, *given, **more)

    monkeypatch.setattr(CachedChanges, "_render", statement)
    with ThreadPoolExecutor(1) as pool:
        given_up = pool.submit(one.merge, "upsert_delete")
        assert asleep.wait(600)
        one.spark.interruptAll()
        one.merge("upsert_delete")
    assert one.read("upsert_delete") == [(1, "b", 1.0), (3, "a", 1.0)]
    committed = one.destination("upsert_delete").committed()
    assert committed
    assert committed.batch_number == 2
    assert one.merge("upsert_delete") is None
    assert [t.name for t in one.spark.catalog.listTables() if t.name.startswith("batchmerge_changes")] == []


def test_killed_run_leaves_nothing_in_the_summary_of_the_next(engine: Callable[..., Engine]) -> None:
    """The next run goes on in the same Spark session, in which the killed one has not removed its settings. A user's
    own properties stay in all snapshots."""
    one = engine("upsert_delete").with_table_options(write="copy_on_write")
    option = "spark.sql.iceberg.snapshot-property."
    left, own = f"{option}batchmerge.of-a-killed-run", f"{option}team"
    one.spark.conf.set(left, "x")
    one.spark.conf.set(own, "shop")
    one.produce(put(1))
    one.advance()
    snapshot = catalog(one.connections).require(one.flow.table("upsert_delete")).current_snapshot()
    assert snapshot
    assert snapshot.summary
    assert snapshot.summary.additional_properties.get("batchmerge.of-a-killed-run") is None
    assert snapshot.summary.additional_properties.get("team") == "shop"
    assert left not in one.spark.conf.getAll
    one.spark.conf.unset(own)


def test_verification_compares_its_own_rows_while_another_one_begins(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = engine("upsert", "upsert_delete")
    one.produce(put(1), Record(0, 1, None))
    one.advance()
    compared: list[int] = []

    def meanwhile(rows: DataFrame, values: RowValues) -> Judged:
        if not compared:
            compared.append(0)
            compared.append(reconcile(one.pipeline, one.destination("upsert_delete"), 0).compared)
        return judged(rows, values)

    monkeypatch.setattr("jobs.verify.reconciliation.judged", meanwhile)
    assert reconcile(one.pipeline, one.destination("upsert"), 0).compared == 1
    assert compared == [0, 0]


@pytest.mark.parametrize("point", ["merge.begun", "merge.written"])
def test_attempt_that_is_swept_away_is_made_again(
    point: str, engine: Callable[..., Engine], meanwhile: Callable[[str, Callable[[], None]], list[str]]
) -> None:
    one = engine("upsert").with_table_options(write="copy_on_write")

    def sweep() -> None:
        found = catalog(one.connections).require(one.flow.table("upsert"))
        (branch,) = [name for name in found.metadata.refs if name.startswith("attempt--")]
        found.manage_snapshots().remove_branch(branch).commit()

    one.produce(put(1))
    seen = meanwhile(point, sweep)
    one.advance()
    assert seen.count("merge.begun") == 2
    assert one.read("upsert") == [(1, "a", 1.0)]


@pytest.mark.parametrize("point", ["merge.begun", "merge.written"])
def test_run_that_begins_meanwhile_does_not_end_the_one_before(
    point: str, engine: Callable[..., Engine], meanwhile: Callable[[str, Callable[[], None]], list[str]]
) -> None:
    """Of another Dagster instance, and on another Spark server. It finds the batch done when it comes to commit."""
    one = engine("upsert").with_table_options(write="copy_on_write")
    one.produce(put(1))
    one.land()
    found = one.destination("upsert")
    assert isinstance(found, iceberg_destination.IcebergDestination)
    found.prepare()
    others: list[Attempt] = []
    seen = meanwhile(point, lambda: others.append(found._commit(Attempt, None)))
    one.merge("upsert")
    assert seen == ["merge.begun", "merge.written", "merge.published"], "one attempt is enough"
    with pytest.raises(CommitFailed, match="another run has removed"):
        others[0].head()
    with pytest.raises(CommitFailed, match="committed state has changed"):
        found._commit(Attempt, None)


# ---- columns --------------------------------------------------------------------------------------------------------


def test_table_whose_files_have_no_field_ids_is_continued(engine: Callable[..., Engine], tmp_path: Path) -> None:
    """As made of Parquet files that were there before (`add_files`): its columns are known by a name mapping alone."""
    test = engine("upsert_delete")
    name = test.flow.table("upsert_delete")
    # Columns in another order, and one by the name that it had then.
    was = pa.table({"amount": [1.0, 2.0, 3.0], "title": ["a", "b", "c"], "id": pa.array([1, 2, 3], pa.int64())})
    pq.write_table(was, tmp_path / "was.parquet")
    then = pa.schema([("id", pa.int64()), ("title", pa.string()), ("amount", pa.float64())])
    made = catalog(test.connections).create(name, iceberg_schema(then), properties={"format-version": "2"})
    made.add_files([str(tmp_path / "was.parquet")])
    with catalog(test.connections).require(name).update_schema() as update:
        update.rename_column("title", "name")
    more = with_columns(test, extra="date")
    more.produce(put(2, "new", extra="2026-01-01"), Record(0, 3, None), put(4, "d"))
    more.land()
    more.merge_all()
    assert more.read("upsert_delete") == [(1, "a", 1.0), (2, "new", 1.0), (4, "d", 1.0)]
    assert "extra" in catalog(test.connections).require(name).properties["schema.name-mapping.default"]


# ---- files that tasks write -----------------------------------------------------------------------------------------


def test_tasks_that_run_twice_double_nothing(engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs a task again whose executor was lost: what the first try wrote is on disk, and in no snapshot."""
    one, write, tries = engine("append"), BatchRecords.write, list[list[TaskReport]]()

    def again(*given: Any) -> list[TaskReport]:
        tries.extend(write(*given) for _ in range(2))
        return tries[-1]

    monkeypatch.setattr(BatchRecords, "write", again)
    one.produce(put(1), put(2), Record(0, 3, "{"))
    one.advance()
    first, second = ({file.path for report in found for file in report.files} for found in tries)
    assert first
    assert not first & second
    assert all(Path(path.removeprefix("file://")).exists() for path in first | second)
    landed = catalog(one.connections).require(f"landing.{one.flow.name}_tmp")
    assert {task.file.file_path for task in landed.scan().plan_files()} == second
    assert one.read("append") == [(1, "a", 1.0), (2, "a", 1.0)]
    monkeypatch.setattr(BatchRecords, "write", lambda *given: [*write(*given), *write(*given)])
    one.produce(put(4))
    with pytest.raises(InvariantBroken, match="twice"):
        one.advance()
    assert len(one.pipeline.intermediate.landed().batches) == 1
