"""Rows stay on Spark's workers: what a run sees of them does not grow with their number."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from jobs.destinations import shares
from resources.errors import Unavailable
from resources.spark_errors import spark_errors
from tests.destinations.conftest import MakeStory
from tests.kit.dead_letters import read_all
from tests.kit.kind import KindUnderTest
from tests.kit.kinds import KINDS
from tests.kit.received import ROWS, check_no_rows, incompressible, received
from tests.kit.records import COLUMNS, Record
from tests.kit.story import Story, Target, on_targets


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    """One batch of 1.2 MB."""
    story = new_story(partitions=2)
    values = [{"id": n, "name": incompressible(n), "amount": n * 0.5, "op": "u"} for n in range(ROWS)]
    story.produce(*(Record(n % 2, n, value) for n, value in enumerate(values)))
    with received() as landing:
        assert [batch.counts.landed for batch in story.land()] == [ROWS]
    check_no_rows(landing)
    return story


every_unfit_kind = pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.name) for kind in KINDS.values() if kind.unrepresentable]
)
on_workers = on_targets(can="rows_on_workers", always="upsert_delete")


@on_workers
def test_a_merge_and_a_replay_bring_no_rows_here(target: Target, story: Story) -> None:
    for way in target.kind.ways:
        table = story.table(target, **way)
        with received() as merging:
            table.merge()
        check_no_rows(merging)
        table.remove(below=10)
        with received() as replaying:
            assert table.replay(1, 1)
        check_no_rows(replaying)
        assert len(table.rows()) == ROWS


@on_workers
def test_a_verification_of_all_rows_brings_none_here(
    target: Target, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "WORTH_A_TASK", ROWS // 3)
    table = story.table(target)
    table.merge()
    table.remove(below=10)
    table.plant((ROWS + 1, "planted", 0.5))
    with received() as verifying:
        verdict = table.verify()
    check_no_rows(verifying)
    assert verdict.compared == ROWS - 9
    assert verdict.wrong[0] == f"{ROWS - 9} rows, landed changes make {ROWS}"


def test_dead_letters_go_to_their_topic_from_workers(new_story: MakeStory) -> None:
    queue = f"dlq-{uuid.uuid4().hex}"
    story = new_story(dead_letters={"topic": queue})
    story.produce(*(Record(0, n, "{" + incompressible(n)) for n in range(ROWS)))
    with received() as landing:
        assert [batch.counts.quarantined for batch in story.land()] == [ROWS]
    check_no_rows(landing)
    sent = read_all(story.engine.connections, queue, ROWS)
    assert [message.value() for message in sent] == [str(record.value).encode() for record in story.records]


@every_unfit_kind
def test_rows_that_a_table_refuses_go_to_the_topic_from_workers(kind: KindUnderTest, new_story: MakeStory) -> None:
    assert kind.unrepresentable
    queue, (odd, unfit) = f"dlq-{uuid.uuid4().hex}", kind.unrepresentable
    story = new_story(columns={**COLUMNS, "odd": odd}, dead_letters={"topic": queue})
    values = [{"id": n, "name": incompressible(n), "amount": 1.0, "op": "u", "odd": unfit} for n in range(ROWS)]
    story.produce(*(Record(0, n, value) for n, value in enumerate(values)))
    story.land()
    table = story.table(Target(kind, "append"))
    with received() as merging:
        table.merge()
    check_no_rows(merging)
    assert table.destination.refused() == {1: ROWS}
    assert len(read_all(story.engine.connections, queue, ROWS)) == ROWS
    with received() as verifying:
        assert table.verify().wrong == []
    check_no_rows(verifying)


def test_what_a_task_meets_is_raised_as_it_was(spark: SparkSession) -> None:
    def share() -> Iterator[pa.Table]:
        raise Unavailable("no answer", where="far away", remedy="look there")

    rows = shares.rows_of(spark, [share], pa.schema([("a", pa.int64())]))
    with pytest.raises(Unavailable, match="no answer") as caught, spark_errors("a table"):
        rows.count()
    assert (caught.value.where, caught.value.remedy) == ("far away", "look there")
