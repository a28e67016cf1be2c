"""Maintenance on real tables: what it removes, what stays, and that pipelines and other writers go on beside it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from jobs.batch import LandedBatch
from jobs.dead_letters.listing import list_dead_letters
from jobs.destinations.iceberg import destination as iceberg_destination
from jobs.iceberg.branches import attempt_branch
from jobs.maintenance import compaction, retention, upkeep
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.maintenance.report import Done
from jobs.maintenance.run import maintain_landing, maintain_table
from jobs.merged import MergedBatches
from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from resources.connections import Connections
from resources.errors import CommitFailed, ConfigurationError, TerminalError
from tests.kit import model
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.interrupting import at_failpoints
from tests.kit.lake import files_in
from tests.kit.records import Record, put

EAGER = {
    "compaction": {"min_input_files": 2},
    "manifests": {"min_count": 2},
    "snapshots": {"keep_days": 1e-6, "keep_last": 1},
    "landed": {"keep_days": 1e-6},
}


@pytest.fixture
def engine(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> Callable[..., Engine]:
    def make(*modes: str, **maintenance: object) -> Engine:
        options = {"metadata_columns": ["topic", "partition", "offset"]}
        overrides: dict[str, object] = {"maintenance": {**EAGER, **maintenance}, "control": {"enabled": False}}
        return Engine(Flow(topic(), list(modes), table_options=options, overrides=overrides), connections, spark)

    return make


def maintain(engine: Engine) -> dict[tuple[str, str], Done]:
    """All tasks on all tables, by table (the last part of its name) and task; none may fail."""
    pipeline = engine.pipeline
    done = list(maintain_landing(pipeline))
    for destination in pipeline.destinations():
        done += maintain_table(pipeline, destination)
    assert [str(d) for d in done if d.problem] == []
    return {(d.table.removeprefix(f"tests.{engine.flow.name}_").removeprefix("landing."), d.task): d for d in done}


def table_of(engine: Engine, mode: str) -> Table:
    return catalog(engine.connections).require(engine.flow.table(mode))


def ids(engine: Engine, mode: str) -> list[int]:
    return sorted(table_of(engine, mode).scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def all_are_old(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Iterator[None]:
    """No file is too young to be an orphan. Iceberg takes a time that is not long ago only of its own tests, and in
    an object store nobody can make a file look old."""
    monkeypatch.setattr(upkeep, "_nobodys_before", lambda _: datetime.now(UTC) + timedelta(hours=1))
    rejects = "spark.sql.legacy.setCommandRejectsSparkCoreConfs"
    spark.conf.set(rejects, "false")
    spark.conf.set("spark.testing", "true")
    yield
    spark.conf.unset("spark.testing")
    spark.conf.unset(rejects)


MODES = ["append", "upsert_delete"]


@pytest.mark.usefixtures("all_are_old")
def test_no_file_is_deleted_where_a_table_says_so(engine: Callable[..., Engine]) -> None:
    """As of a table that another engine has made from the files of a third one (`snapshot`)."""
    one = engine("append").with_table_options(properties={"gc.enabled": "false"})
    for n in range(3):
        one.produce(put(n))
        one.advance()
    tables, names = catalog(one.connections), (f"landing.{one.flow.name}_tmp", one.flow.table("append"))
    with tables.require(names[0]).transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    before = {name: set(files_in(tables.require(name), "data")) for name in names}

    done = maintain(one)

    for table in (f"{one.flow.name}_tmp", "append"):
        assert {done[table, task].note for task in ("snapshots", "orphans")} == {
            "gave way: the table's property `gc.enabled` is false: no file is deleted"
        }
    assert done["append", "compaction"].counts["files rewritten"] == 3
    assert done[f"{one.flow.name}_tmp", "landed"].counts["batches removed"] == 2
    for name, files in before.items():
        assert files <= set(files_in(tables.require(name), "data"))


@pytest.mark.usefixtures("all_are_old")
@pytest.mark.parametrize(
    "most", [pytest.param(4000, marks=pytest.mark.slow), 10], ids=["short states", "states in files"]
)
def test_pipeline_goes_on_after_each_task(
    most: int, engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.iceberg.state_file._MOST", most)
    one = engine(*MODES)
    records = []
    one.produce(Record(0, 0, "{bad"))
    for n in range(6):
        records += [put(n), put(n % 2, f"n{n}")]
        one.produce(*records[-2:])
        one.advance()
    landing = f"{one.flow.name}_tmp"
    dead = attempt_branch(one.flow.name, "main", uuid.uuid4().hex, datetime.now(UTC) - timedelta(days=9))
    for mode in MODES:
        table = table_of(one, mode)
        with table.io.new_output(f"{table.location()}/data/of-a-dead-run.parquet").create() as file:
            file.write(b"x")
        table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, dead).commit()  # type: ignore[union-attr]
    states = {mode: one.destination(mode).committed() for mode in MODES}

    done = maintain(one)

    assert done[landing, "landed"].counts["batches removed"] == 5
    assert done[landing, "landed"].counts["batches kept"] == 1
    assert done[landing, "landed"].counts["rows deleted"] == 10
    assert [left.batch for left in list_dead_letters(one.pipeline, 9)] == [1], "a dead letter outlives its batch"
    for mode in MODES:
        counts = {task: done[mode, task].counts for _, task in done if (mode, task) in done}
        assert counts["branches"] == {"branches removed": 1}, mode
        assert counts["compaction"]["files before"] > counts["compaction"]["files after"] == 1, mode
        assert counts["compaction"]["delete files after"] == 0, mode
        assert list(counts["manifests"].values())[-1] == 1, mode
        assert counts["snapshots"]["snapshots removed"] > 0, mode
        assert counts["orphans"] == {"orphan files removed": 1}, mode
        assert one.read(mode) == model.expected(records, mode), mode
        assert dead not in table_of(one, mode).metadata.refs
        assert one.destination(mode).committed() == states[mode], "offsets stay readable"
    for table in (catalog(one.connections).require(one.pipeline.intermediate.identifier), table_of(one, MODES[0])):
        files = {name for path in files_in(table) if (name := Path(path).name).endswith(".puffin")}
        assert files == {Path(statistics.statistics_path).name for statistics in table.metadata.statistics}
        assert bool(files) == (most < 100), "those of expired snapshots are deleted, the others stay"

    for n in (20, 21):
        records.append(put(n))
        one.produce(records[-1])
        one.advance()
        for mode in MODES:
            assert one.read(mode) == model.expected(records, mode), mode
    known = one.pipeline.intermediate.landed()
    assert ([b.number for b in known.batches], known.complete) == ([6, 7, 8], False)
    assert [len(b.batch.ranges) for b in known.batches] == [1, 1, 1]
    assert one.replay("append", 6, 8)
    with pytest.raises(ConfigurationError, match=r"batches before 6, landed before .* were removed by retention"):
        one.replay("append", 5, 8)
    assert one.read("append") == model.expected(records, "append")


def test_snapshots_of_kept_deletes_expire_too(engine: Callable[..., Engine]) -> None:
    """No snapshot of theirs has a committed state. An older change brings no row back afterwards."""
    changes = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "amount"}
    one = engine("upsert_delete").edited(changes=changes)
    for n in range(3):
        one.produce(put(n, amount=2), put(n, amount=3, op="d"))
        one.advance()
    done, (deletes,) = maintain(one), {d.kept_deletes for d in one.pipeline.destinations()}
    assert deletes
    assert done[deletes.removeprefix(f"tests.{one.flow.name}_"), "snapshots"].counts["snapshots removed"] >= 2
    assert len(catalog(one.connections).require(deletes).metadata.snapshots) == 1
    one.produce(put(0, amount=2), put(9, amount=1))
    one.advance()
    assert ids(one, "upsert_delete") == [9]


def test_landed_batches_wait_for_a_table_that_is_behind(engine: Callable[..., Engine]) -> None:
    one = engine("append", "upsert")
    for n in range(4):
        one.produce(put(n))
        one.land()
        one.merge("append")
        if n < 2:
            one.merge("upsert")
    landing = f"{one.flow.name}_tmp"
    assert maintain(one)[landing, "landed"].counts["batches removed"] == 2
    one.merge_all()
    assert [row[0] for row in one.read("upsert")] == [0, 1, 2, 3]
    assert maintain(one)[landing, "landed"].counts["batches kept"] == 1


def advance_thrice(one: Engine) -> None:
    """Three batches of one record each, in every table."""
    for n in range(3):
        one.produce(put(n))
        one.advance()


@pytest.mark.slow
def test_retention_that_died_in_the_middle_is_finished_by_the_next(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = engine("append")
    advance_thrice(one)

    def dies(*_: object, **__: object) -> int:
        raise CommitFailed("died")

    with monkeypatch.context() as patch:
        patch.setattr("jobs.maintenance.retention._delete", dies)
        assert "died" in maintain(one)[f"{one.flow.name}_tmp", "landed"].note
    with pytest.raises(ConfigurationError, match="removed by retention"):
        one.replay("append", 1, 3)
    assert maintain(one)[f"{one.flow.name}_tmp", "landed"].counts["rows deleted"] == 2


@pytest.mark.slow
def test_retention_leaves_what_is_read_again_while_it_decides(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay lands after retention has looked, and its tables have not merged it yet."""
    one = engine("upsert")
    advance_thrice(one)
    other = one.with_source(transform="select id, 'x' as name, amount, op from records")
    decide = retention.first_kept

    def decide_late(*known: Any) -> LandedBatch | None:
        assert reread_from_kafka(other.pipeline, from_offsets({TopicPartition(one.flow.topic, 0): 0}))
        return decide(*known)

    with monkeypatch.context() as patch:
        patch.setattr(retention, "first_kept", decide_late)
        maintain(one)
    other.merge_all()
    assert one.read("upsert") == [(n, "x", 1.0) for n in range(3)]
    assert maintain(one)[f"{one.flow.name}_tmp", "landed"].counts["batches removed"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("point", ["land.begun", "land.written"])
def test_replay_begins_again_if_retention_removes_what_it_counts_on(point: str, engine: Callable[..., Engine]) -> None:
    """It reads the first change of a key, because the second one is landed, and so is newer in the merge."""
    one = engine("upsert")
    for name in ("first", "second", "third"):
        one.produce(put(0, name) if name != "third" else put(1))
        one.advance()
    before = one.read("upsert")
    slept: list[str] = []

    def meanwhile(reached: str) -> None:
        if reached == point and not slept:
            slept.append(reached)
            maintain(one)

    tp = TopicPartition(one.flow.topic, 0)
    with at_failpoints(meanwhile):
        assert reread_from_kafka(one.pipeline, from_offsets({tp: 0}, {tp: 1}))
    assert slept
    one.merge_all()
    assert one.read("upsert") == before == [(0, "second", 1.0), (1, "a", 1.0)]


@pytest.mark.slow
def test_maintenance_gives_way_to_a_merge(engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a MERGE nothing is done that would make it void: it commits in its first attempt."""
    one = engine("upsert").with_table_options(write="copy_on_write")
    advance_thrice(one)
    seen: list[str] = []
    notes: dict[str, str] = {}

    def failpoint(name: str) -> None:
        seen.append(name)
        if name == "merge.written" and seen.count(name) == 1:
            notes.update({task: done.note for (_, task), done in maintain(one).items()})

    monkeypatch.setattr(iceberg_destination, "failpoint", failpoint)
    one.produce(put(0, "b"))
    one.advance()
    assert seen == ["merge.begun", "merge.written", "merge.published"]
    assert notes["compaction"] == notes["manifests"] == "gave way: a merge is under way"
    assert one.read("upsert")[0] == (0, "b", 1.0)
    assert maintain(one)["upsert", "compaction"].counts["files after"] == 1


@pytest.mark.slow
def test_compaction_whose_branch_was_removed_gives_way(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another maintenance, which took it for dead, or by a person."""
    one = engine("upsert")
    advance_thrice(one)
    publish = compaction._publish

    def remove_meanwhile(kept: MaintainedTable, before: Table, branch: str) -> None:
        kept.load().manage_snapshots().remove_branch(branch).commit()
        publish(kept, before, branch)

    monkeypatch.setattr(compaction, "_publish", remove_meanwhile)
    assert "has removed this compaction's branch" in maintain(one)["upsert", "compaction"].note
    assert one.read("upsert") == [(n, "a", 1.0) for n in range(3)]


@pytest.mark.slow
def test_compaction_that_was_overtaken_is_dropped(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = engine("upsert")
    advance_thrice(one)
    one.produce(put(0, "b"))
    one.land()
    merged: list[MergedBatches | None] = []
    publish = compaction._publish

    def merge_meanwhile(kept: MaintainedTable, before: Table, branch: str) -> None:
        if not merged:
            merged.append(one.merge("upsert"))
        publish(kept, before, branch)

    monkeypatch.setattr(compaction, "_publish", merge_meanwhile)
    assert maintain(one)["upsert", "compaction"].note.startswith("gave way: ")
    assert one.read("upsert") == [(0, "b", 1.0), (1, "a", 1.0), (2, "a", 1.0)]
    assert [name for name in table_of(one, "upsert").metadata.refs if "--" in name] == []


# ---- other writers --------------------------------------------------------------------------------------------------


@contextmanager
def writing_beside(engine: Engine, modes: list[str], pause: float) -> Iterator[Callable[[], int]]:
    """Another writer that appends to the tables and compacts them, all the time; how many rows it has appended."""
    stop, problems, appended = threading.Event(), list[BaseException](), list[int]()

    def write() -> None:
        try:
            while not stop.wait(pause):
                for mode in modes:
                    _append(table_of(engine, mode), 1000 + len(appended))
                appended.append(1)
                maintain(engine)
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=write)
    thread.start()
    try:

        def rows() -> int:
            assert problems == []
            return len(appended)

        yield rows
    finally:
        stop.set()
        thread.join()
    assert problems == []


def _append(table: Table, key: int) -> None:
    """One row; as patient as any other writer."""
    row = {"id": key, "name": "theirs", "amount": 0.0}
    rows = pa.Table.from_pylist([row], table.schema().as_arrow())
    for _ in range(50):
        try:
            table.refresh().append(rows)
            return
        except CommitFailedException:
            continue
    raise AssertionError("their append never came through")


@pytest.mark.slow
def test_pipeline_goes_on_beside_appends_and_compaction(engine: Callable[..., Engine]) -> None:
    one = engine("append", "upsert_delete")
    records = [put(n) for n in range(4)]
    one.produce(*records)
    one.advance()
    with writing_beside(one, MODES, 0.2) as appended:
        for n in range(2):
            while appended() <= n:
                time.sleep(0.05)
            records += [put(n, f"n{n}"), put(50 + n)]
            one.produce(*records[-2:])
            one.advance()
    for mode in MODES:
        ours = [row for row in one.read(mode) if row[1] != "theirs"]
        theirs = [n for n in ids(one, mode) if n >= 1000]
        assert ours == model.expected(records, mode), mode
        assert len(theirs) == appended(), mode


def test_writer_that_is_always_faster_ends_in_a_clear_error(
    engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = engine("upsert")
    one.produce(put(1))
    one.advance()
    one.produce(put(2))
    one.land()
    tables = one.document["tables"]
    bounded = one.edited(tables=[{**tables[0], "max_commit_attempts": 3}])
    seen: list[str] = []

    def failpoint(name: str) -> None:
        seen.append(name)
        if name == "merge.written":
            _append(table_of(one, "upsert"), 1000 + len(seen))

    with monkeypatch.context() as patch:
        patch.setattr(iceberg_destination, "failpoint", failpoint)
        with pytest.raises(TerminalError, match="during each of 3 attempts") as caught:
            bounded.merge("upsert")
    assert "max_commit_attempts" in caught.value.remedy
    assert seen.count("merge.written") == 3
    one.merge("upsert")
    assert {1, 2} <= set(ids(one, "upsert"))
