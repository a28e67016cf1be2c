"""Rows stay on Spark's workers also where tables get them in rarer ways: an order, a route, Kafka again, a retry."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.dead_letters.retry import retry
from jobs.maintenance.run import maintain_landing, maintain_table
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from tests.destinations.conftest import MakeStory
from tests.kit.dead_letters import LARGE
from tests.kit.kinds import KINDS, runnable
from tests.kit.received import ROWS, check_no_rows, incompressible, received
from tests.kit.records import COLUMNS, Record
from tests.kit.story import Story, TableUnderTest, Target, on_targets, targets

pytestmark = pytest.mark.slow
on_workers = on_targets("append", "upsert_delete", can="rows_on_workers", always="upsert_delete")
FAILS = "select id, name, op, if(id = 7, cast(raise_error('no') as bigint), amount) as amount from records"
EAGER = {"compaction": {"min_input_files": 2}, "manifests": {"min_count": 2}, "landed": {"keep_days": 1e-6}}


def record(n: int, **more: object) -> Record:
    return Record(n % 2, n, {"id": n, "name": incompressible(n), "amount": n * 0.5, "op": "u", **more})


@pytest.fixture(scope="module")
def ordered(new_story: MakeStory) -> Story:
    """Each key has two versions, of which the older comes last."""
    changes = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "version"}
    story = new_story(partitions=2, columns={**COLUMNS, "version": "long"}, changes=changes)
    for version in (2, 1):
        story.produce(*(record(n, version=version) for n in range(ROWS // 2)))
    story.land()
    return story


@on_workers
def test_a_merge_by_a_named_order_brings_no_rows_here(target: Target, ordered: Story) -> None:
    for way in target.kind.ways:
        table = ordered.table(target, **way)
        merge_and_replay(table)
        assert len(table.rows()) == (ROWS if target.mode == "append" else ROWS // 2)


@pytest.fixture(scope="module")
def routed(new_story: MakeStory) -> Story:
    story = new_story(partitions=2, columns={**COLUMNS, "place": "string"})
    story.produce(*(record(n, place="here" if n % 4 else "there") for n in range(ROWS)))
    story.land()
    return story


@on_workers
def test_a_merge_of_routed_records_brings_no_rows_here(target: Target, routed: Story) -> None:
    table = routed.table(target, route={"field": "place", "matches": "here"})
    merge_and_replay(table)
    assert len(table.rows()) == ROWS * 3 // 4


def merge_and_replay(table: TableUnderTest) -> None:
    with received() as merging:
        assert table.merge()
    check_no_rows(merging)
    with received() as replaying:
        assert table.replay(1, 1)
    check_no_rows(replaying)


def a_table_of_each_kind(story: Story) -> list[TableUnderTest]:
    return [story.table(target) for target in targets("upsert_delete", can="rows_on_workers") if runnable(target.kind)]


def test_what_is_read_from_kafka_again_brings_no_rows_here(new_story: MakeStory) -> None:
    story = new_story(partitions=2)
    story.produce(*map(record, range(ROWS)))
    story.land()
    tables = a_table_of_each_kind(story)
    for table in tables:
        table.merge()
        table.remove(below=10)
    pipeline = story.engine.edited(tables=[table.entry for table in tables]).pipeline
    start = dict.fromkeys(pipeline.topic_state().partitions, 0)
    with received() as reading:
        assert reread_from_kafka(pipeline, from_offsets(start))
    check_no_rows(reading)
    for table in tables:
        with received() as merging:
            assert table.merge()
        check_no_rows(merging)
        assert len(table.rows()) == ROWS, str(table.target)


@pytest.mark.parametrize("transform", ["", pytest.param(FAILS, marks=pytest.mark.slow)], ids=["decoded", "transformed"])
def test_a_retry_of_dead_letters_brings_no_rows_here(transform: str, new_story: MakeStory) -> None:
    """Also where Spark fails in the transform of one of them, which is looked for."""
    story = new_story(partitions=2, columns={**COLUMNS, "amount": "int"})
    story.produce(*(record(n, amount=LARGE) for n in range(ROWS)))
    assert [batch.counts.quarantined for batch in story.land()] == [ROWS]
    corrected = story.reading({**COLUMNS, "amount": "long"}, **({"transform": transform} if transform else {}))
    tables = a_table_of_each_kind(corrected)
    pipeline = corrected.engine.edited(tables=[table.entry for table in tables]).pipeline
    with received() as retrying:
        done = retry(pipeline)
    # Three merges, and what finds the one that fails.
    check_no_rows(retrying, times=6)
    assert (done.tried, done.recovered) == (ROWS, ROWS - 1 if transform else ROWS)
    for table in tables:
        assert len(table.select("id")) == done.recovered, str(table.target)


def test_maintenance_brings_no_rows_here(new_story: MakeStory) -> None:
    story = new_story(partitions=2, maintenance=EAGER)
    table = story.table(Target(KINDS["iceberg"], "upsert_delete"))
    for first in (0, ROWS // 2):
        story.produce(*map(record, range(first, first + ROWS * 2 // 3)))
        story.land()
        table.merge()
    pipeline = table.engine.pipeline
    with received() as maintaining:
        done: list[Any] = [*maintain_landing(pipeline), *maintain_table(pipeline, pipeline.destinations()[0])]
    check_no_rows(maintaining)
    assert [str(one) for one in done if one.problem] == []
    counts = {one.task: one.counts for one in done if one.table == table.name}
    assert counts["compaction"]["files after"] < counts["compaction"]["files before"]
    assert len(table.rows()) == ROWS // 2 + ROWS * 2 // 3
