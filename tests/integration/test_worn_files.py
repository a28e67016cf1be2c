"""Merges that rewrite worn data files within their commit, on Spark: killed, overtaken by another writer, replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.iceberg.folding import FoldTask
from jobs.iceberg.row_delta import RowDelta
from jobs.spark.spark_tasks import Batches
from resources.connections import Connections
from tests.kit import model
from tests.kit.engine import catalog
from tests.kit.interrupting import at_failpoints, die_at_each
from tests.kit.kinds import KINDS
from tests.kit.records import Record, put, random_changes
from tests.kit.story import Story, TableUnderTest, Target

MODE = "upsert_delete"


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each merge folded something. A few deleted rows are enough."""
    found, fold_task = list[bool](), RowDelta.fold_task
    monkeypatch.setattr("jobs.iceberg.folding._LEAST_GONE", 4)

    def noted(delta: RowDelta) -> object:
        task = fold_task(delta)
        found.append(task is not None)
        return task

    monkeypatch.setattr(RowDelta, "fold_task", noted)
    return found


@pytest.fixture
def story(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> Story:
    return Story.of(topic(partitions=2), connections, spark)


@pytest.fixture
def table(story: Story) -> TableUnderTest:
    return story.table(Target(KINDS["iceberg"], MODE))


def delete_files(table: TableUnderTest) -> str | None:
    snapshot = catalog(table.engine.connections).require(table.name).current_snapshot()
    assert snapshot
    assert snapshot.summary
    return snapshot.summary["total-delete-files"]


def test_what_dies_while_it_rewrites_is_done_again(table: TableUnderTest, folded: list[bool]) -> None:
    for seed in range(4):
        table.story.land_each([random_changes(seed, 40, 30, 2)])
        died = die_at_each(table.merge)
        assert {"merge.written", "merge.published"} <= {*died}
        assert table.rows() == model.expected(table.story.records, MODE)
        assert delete_files(table) == "0"
    assert any(folded)
    assert not table.verify().wrong
    assert table.replay(1, 4)
    assert table.rows() == model.expected(table.story.records, MODE)


def test_changes_do_not_wait_for_files_that_cannot_be_rewritten(
    table: TableUnderTest, folded: list[bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a file that pyiceberg refuses, or one that is too large for the memory of Spark's workers."""

    class Fails(FoldTask):
        def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
            raise ValueError(f"a value in {batches}")

    fold_task = RowDelta.fold_task

    def failing(delta: RowDelta) -> FoldTask | None:
        task = fold_task(delta)
        return task and Fails(task.files, task.metadata, task.groups)

    with monkeypatch.context() as patch:
        patch.setattr(RowDelta, "fold_task", failing)
        for seed in range(3):
            table.story.land_each([random_changes(seed, 40, 30, 2)])
            table.merge()
            assert table.rows() == model.expected(table.story.records, MODE)
    assert any(folded)
    assert delete_files(table) != "0"
    (warning, *_) = (r.getMessage() for r in caplog.records if "were not rewritten" in r.getMessage())
    assert "ValueError in a Python worker" in warning
    assert "a value in" not in caplog.text
    table.story.land_each([random_changes(3, 40, 30, 2)])
    table.merge()
    assert table.rows() == model.expected(table.story.records, MODE)
    assert delete_files(table) == "0"


def test_what_was_overtaken_is_merged_again_on_the_others_rows(table: TableUnderTest, folded: list[bool]) -> None:
    table.story.land_each([random_changes(1, 60, 30, 2)])
    table.merge()
    table.story.land_each([random_changes(2, 40, 30, 2)])
    folded.clear()
    theirs, planted = (1000, "theirs", 1.0), list[str]()

    def overtake(point: str) -> None:
        if point == "merge.written" and not planted:
            planted.append(point)
            table.plant(theirs)

    with at_failpoints(overtake):
        table.merge()
    assert planted
    assert folded == [True, True]
    assert table.rows() == [*model.expected(table.story.records, MODE), theirs]


def test_what_others_do_between_merges_stays(story: Story, folded: list[bool]) -> None:
    """Spark's deletes and updates, each with delete files of its own, and columns that are only theirs."""
    theirs = {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update")}
    layout = {"partition_by": ["bucket(2, id)"], "sort_by": ["name"], "metadata_columns": []}
    table = story.table(Target(KINDS["iceberg"], MODE), properties=theirs, **layout)
    path = ".".join(catalog(table.engine.connections).spark_path(table.name))
    known, notes = list[Record](), dict[int, str]()
    for turn in range(5):
        changes = random_changes(turn, 40, 30, 2, bad=0)
        story.land_each([changes])
        table.merge()
        if turn == 0:
            story.engine.spark.sql(f"ALTER TABLE {path} ADD COLUMN note string AFTER id")
        story.engine.spark.sql(f"DELETE FROM {path} WHERE id % 5 = {turn}")
        story.engine.spark.sql(f"UPDATE {path} SET note = name, amount = -1 WHERE id % 5 = {(turn + 2) % 5}")
        deleted = [Record(0, key, None) for key in range(turn, 30, 5)]
        known += [*changes, *deleted]
        updated = {key: name for key, name, _ in model.expected(known, MODE) if key % 5 == (turn + 2) % 5}
        known += [put(key, name, amount=-1) for key, name in updated.items()]
        touched = {record.key for record in (*changes, *deleted)}
        notes = {**{key: note for key, note in notes.items() if key not in touched}, **updated}
        assert table.rows() == model.expected(known, MODE)
        assert {row["id"]: row["note"] for row in table.select("id", "note") if row["note"]} == notes
    assert sum(folded) > 1
