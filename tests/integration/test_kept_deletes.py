"""Kept deletes of Iceberg tables when a reset accepts another `order_by`, and a run with the earlier one wakes up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from jobs.destinations.iceberg.cached_changes import CachedChanges
from resources.connections import Connections
from resources.errors import BatchmergeError, ConfigurationError
from tests.kit.engine import catalog
from tests.kit.interrupting import at_failpoints
from tests.kit.kinds import KINDS
from tests.kit.records import COLUMNS, Record
from tests.kit.resets import reset_offsets
from tests.kit.story import Story, TableUnderTest, Target

KEYED = {"key": {"columns": ["id"]}, "op": {"field": "op"}}


def change(key: int, op: str, seconds: int) -> Record:
    """`lsn` is an order of the same type as `seconds`, and its values are larger."""
    order = {"lsn": seconds * 1_000_000, "seconds": seconds}
    return Record(0, key, {"id": key, "name": op, "amount": float(seconds), "op": op, **order})


@pytest.fixture(params=[0, 1], ids=["position deletes", "merge into"])
def tables(
    request: pytest.FixtureRequest, topic: Callable[..., str], connections: Connections, spark: SparkSession
) -> tuple[TableUnderTest, TableUnderTest]:
    """One table under the pipeline file of before, and under the one with another order."""
    columns = {**COLUMNS, "lsn": "long", "seconds": "long"}
    before = Story.of(topic(), connections, spark, columns=columns, changes={**KEYED, "order_by": "lsn"})
    old = before.table(Target(KINDS["iceberg"], "upsert_delete", request.param))
    return old, old.under(before.edited(changes={**KEYED, "order_by": "seconds"}))


def land(table: TableUnderTest, *changes: Record) -> None:
    table.story.produce(*changes)
    table.story.land()


def kept(table: TableUnderTest) -> dict[int, int]:
    """The kept deletes: key and order."""
    name = table.destination.kept_deletes
    assert name
    rows = catalog(table.engine.connections).require(name).scan().to_arrow().to_pylist()
    return {row["id"]: row["__order"] for row in rows}


@pytest.mark.parametrize("work", [pytest.param("merge", marks=pytest.mark.slow), "replay"])
def test_run_that_slept_keeps_no_delete_in_the_earlier_order(
    work: str, tables: tuple[TableUnderTest, TableUnderTest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found its changes, and sleeps until a reset to another order is merged."""
    old, new = tables
    land(old, change(1, "c", 1), change(2, "c", 1))
    old.merge()
    land(old, change(1, "d", 2))
    if work == "replay":
        old.merge()
    asleep, keep_deletes = [True], CachedChanges._keep_deletes

    def keep_deletes_late(changes: CachedChanges) -> None:
        while asleep:
            asleep.clear()
            old.merge()
            reset_offsets(new.engine.pipeline)
            new.merge()
        keep_deletes(changes)

    monkeypatch.setattr(CachedChanges, "_keep_deletes", keep_deletes_late)
    # Refused, it looks at the state again, which its pipeline file does not fit any more.
    with pytest.raises(ConfigurationError, match="`changes`"):
        _ = old.replay(1, 2) if work == "replay" else old.merge()
    assert not asleep
    assert kept(new) == {}
    land(new, change(1, "u", 3))
    new.merge()
    assert new.rows() == [(1, "u", 3.0), (2, "c", 1.0)]


def test_replay_with_the_earlier_order_waits_for_a_reset_that_is_being_merged(
    tables: tuple[TableUnderTest, TableUnderTest],
) -> None:
    """The kept deletes are renewed already, and the table is still at the state of before."""
    old, new = tables
    land(old, change(1, "c", 1), change(2, "c", 1), change(1, "d", 2))
    old.merge()
    reset_offsets(new.engine.pipeline)
    replayed = list[str]()

    def look(point: str) -> None:
        if point == "merge.begun" and not replayed:
            replayed.append(point)
            with pytest.raises(BatchmergeError, match="another order"):
                old.replay(1, 1)

    with at_failpoints(look):
        new.merge()
    assert replayed
    assert kept(new) == {}


def test_kept_deletes_have_no_committed_state(tables: tuple[TableUnderTest, TableUnderTest]) -> None:
    """A killed run could leave its table's state in the Spark session, and a later one wrote it to their snapshot."""
    table, _ = tables
    land(table, change(1, "c", 1), change(1, "d", 2))
    table.merge()
    name, state = table.destination.kept_deletes, table.destination.committed()
    assert name
    assert state
    there = catalog(table.engine.connections).require(name)
    there.append(there.schema().as_arrow().empty_table(), snapshot_properties=state.to_properties())
    land(table, change(2, "c", 1), change(2, "d", 2))
    table.merge()
    assert set(kept(table)) == {1, 2}


def test_merge_without_deletes_leaves_their_table_alone(tables: tuple[TableUnderTest, TableUnderTest]) -> None:
    """Neither a commit, nor a branch that would keep its compaction away."""
    table, _ = tables
    land(table, change(1, "c", 1))
    table.merge()
    name = table.destination.kept_deletes
    assert name
    assert catalog(table.engine.connections).require(name).metadata.snapshots == []
