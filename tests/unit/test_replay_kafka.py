"""Which records a replay from Kafka reads, and when it is refused."""

from __future__ import annotations

import pytest

from jobs.offsets import OffsetRange, TopicPartition
from jobs.plan import TopicState
from jobs.replay.from_kafka import reread_batch
from resources.errors import ConfigurationError, OffsetsGone, TopicRecreated
from tests.kit.batches import P0, P1, TOPIC_IDS, committed

KAFKA = TopicState({P0: 5, P1: 0}, {P0: 40, P1: 40}, TOPIC_IDS)


def test_up_to_the_committed_offsets_under_the_committed_identity() -> None:
    batch = reread_batch(committed(2), KAFKA, {P0: 7, P1: 20}, None, whole=False)
    assert batch.ranges == {P0: OffsetRange(7, 20)}
    assert (batch.number, batch.commit_id) == (2, "c2")


def test_end_holds_for_rows_but_not_for_keys() -> None:
    assert reread_batch(committed(2), KAFKA, {P0: 7}, {P0: 9}, whole=False).ranges == {P0: OffsetRange(7, 9)}
    assert reread_batch(committed(2), KAFKA, {P0: 7}, {P0: 9}, whole=True).ranges == {P0: OffsetRange(7, 20)}
    assert reread_batch(committed(2), KAFKA, {P0: 7}, {P0: 99}, whole=False).ranges == {P0: OffsetRange(7, 20)}


def test_records_that_kafka_has_no_more() -> None:
    with pytest.raises(OffsetsGone, match="offset 4 is wanted, but Kafka has only 5 to 40") as caught:
        reread_batch(committed(2), KAFKA, {P0: 4}, None, whole=True)
    assert "begin at t-0=5" in caught.value.remedy


@pytest.mark.parametrize(
    "topics",
    [
        TopicState({P0: 0}, {P0: 40}, {"t": "another"}),
        TopicState({P0: 0}, {P0: 19}, TOPIC_IDS),
        TopicState({}, {}, {}),
    ],
)
def test_another_topic_of_the_name(topics: TopicState) -> None:
    with pytest.raises(TopicRecreated, match="another topic of this name"):
        reread_batch(committed(2), topics, {P0: 7}, None, whole=True)


def test_partition_that_the_table_has_not_read() -> None:
    with pytest.raises(ConfigurationError, match="no committed offset"):
        reread_batch(committed(2), KAFKA, {TopicPartition("t", 9): 7}, None, whole=True)


def test_too_many_at_once() -> None:
    topics = TopicState({P0: 0}, {P0: 2**40}, TOPIC_IDS)
    state = committed(1, ranges={P0: OffsetRange(0, 2**33)})
    with pytest.raises(ConfigurationError, match="too many for one replay"):
        reread_batch(state, topics, {P0: 0}, None, whole=True)
