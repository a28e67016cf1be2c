"""Which landed batches come next, and every reason to refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.lineage import next_batches, recreated_topics
from jobs.offsets import OffsetRange, TopicPartition
from resources.errors import LineageBroken
from tests.kit.batches import P0, P1, committed, landed


def test_new_table_gets_everything_from_the_first_batch() -> None:
    everything = [landed(1), landed(2)]
    assert next_batches("d", None, everything, True) == everything


def test_only_what_is_newer_than_the_committed_batch() -> None:
    assert [b.number for b in next_batches("d", committed(2), [landed(n) for n in range(1, 5)], True)] == [3, 4]
    assert next_batches("d", committed(2), [landed(1), landed(2)], True) == []


def test_batches_before_the_committed_one_may_be_gone() -> None:
    assert [b.number for b in next_batches("d", committed(3), [landed(4), landed(5)], False)] == [4, 5]


def test_nothing_landed_and_nothing_committed_is_nothing_to_do() -> None:
    assert next_batches("d", None, [], True) == []


def test_a_table_that_comes_late_can_still_get_what_kafka_has() -> None:
    with pytest.raises(LineageBroken) as caught:
        next_batches("d", None, [landed(3)], False)
    assert "`batchmerge offsets reset p --to committed`" in caught.value.remedy
    assert "`batchmerge replay p --kafka-from`" in caught.value.remedy


def test_new_partition_does_not_break_the_lineage() -> None:
    wide = {**landed(2).batch.ranges, TopicPartition("t", 2): OffsetRange(5, 9)}
    assert next_batches("d", committed(1), [landed(1), landed(2, ranges=wide)], True)


@pytest.mark.parametrize(
    ("state", "chain", "complete", "says"),
    [
        pytest.param(None, [landed(3)], False, "removed by retention", id="new table, old batches expired"),
        pytest.param(committed(1), [landed(1), landed(3)], True, "does not follow", id="hole in the chain"),
        pytest.param(committed(5), [landed(1), landed(2)], True, "ends at batch 2", id="intermediate rolled back"),
        pytest.param(committed(1), [], True, "is empty", id="intermediate recreated"),
        pytest.param(
            committed(1, commit_id="other"), [landed(1), landed(2)], True, "landed again", id="other identity"
        ),
        pytest.param(committed(1), [landed(3)], False, "removed by retention", id="batch between is missing"),
        pytest.param(
            committed(1),
            [landed(1), landed(2, ranges={P0: OffsetRange(10, 20), P1: OffsetRange(12, 20)})],
            True,
            "starts at offset 12 of t-1, but 10 is committed",
            id="offsets do not continue",
        ),
        pytest.param(
            None,
            [landed(1), landed(2), landed(3, ranges={P0: OffsetRange(20, 30), P1: OffsetRange(22, 30)})],
            True,
            "starts at offset 22 of t-1, but 20 is where batch 2 ends",
            id="offsets do not continue among what is landed",
        ),
    ],
)
def test_broken_lineage_is_refused_with_choices(state: object, chain: list[object], complete: bool, says: str) -> None:
    with pytest.raises(LineageBroken, match=says) as caught:
        next_batches("lake tests.d", state, chain, complete)  # type: ignore[arg-type]
    assert caught.value.where == "lake tests.d"
    assert "batchmerge offsets reset p --to committed" in caught.value.remedy


def test_recreated_topics_and_the_batches_that_begin_with_the_later_ones() -> None:
    ids = ["a", "a", "b", "b", "c"]
    states = [replace(committed(n), topic_ids={"t": one, "u": "same"}) for n, one in enumerate(ids, 1)]
    assert recreated_topics(states) == {"t": [3, 5]}
    assert recreated_topics([]) == recreated_topics(states[:2]) == {}
