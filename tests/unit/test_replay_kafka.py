"""Which records a replay from Kafka reads, where they stand in the order, and when it is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from jobs.batch import LandedBatch
from jobs.landing.places import BATCH, POSITION, landed_from, places
from jobs.offsets import Later, OffsetRange, Ranges, TopicPartition
from jobs.planning.plan import TopicState
from jobs.replay import ahead
from jobs.replay.from_kafka import check_start, wanted_ranges
from jobs.watermark import Watermark
from resources.errors import ConfigurationError, OffsetsGone, TopicRecreated
from tests.kit import specs
from tests.kit.batches import P0, P1, TOPIC_IDS, committed, landed

KAFKA = TopicState({P0: 5, P1: 0}, {P0: 40, P1: 40}, TOPIC_IDS)


def taking(number: int, *ranges: tuple[int, int], **more: Any) -> LandedBatch:
    """A landed batch of these offsets of P0 and P1."""
    of = {tp: OffsetRange(*span) for tp, span in zip((P0, P1), ranges, strict=False)}
    return landed(number, ranges=of, **more)


LANDED = [taking(1, (10, 15), (0, 10)), taking(2, (15, 20), (10, 20))]


def ranges(start: dict[TopicPartition, int], end: dict[TopicPartition, int] | None, whole: bool) -> object:
    return wanted_ranges(committed(2), KAFKA, LANDED, start, end, whole)


def test_up_to_what_is_landed() -> None:
    assert ranges({P0: 7, P1: 20}, None, whole=True) == {P0: OffsetRange(7, 20)}


def test_end_holds_unless_records_after_it_are_not_landed() -> None:
    assert ranges({P0: 11}, {P0: 13}, whole=True) == {P0: OffsetRange(11, 13)}
    assert ranges({P0: 7}, {P0: 9}, whole=True) == {P0: OffsetRange(7, 10)}
    assert ranges({P0: 7}, {P0: 9}, whole=False) == {P0: OffsetRange(7, 9)}
    assert ranges({P0: 7}, {P0: 99}, whole=False) == {P0: OffsetRange(7, 20)}


def test_records_that_kafka_has_no_more() -> None:
    with pytest.raises(OffsetsGone, match="offset 4 is wanted, but Kafka has only 5 to 40") as caught:
        ranges({P0: 4}, None, whole=True)
    assert "begin at t-0=5" in caught.value.remedy


@pytest.mark.parametrize(
    "topics",
    [TopicState({P0: 0}, {P0: 40}, {"t": "another"}), TopicState({P0: 0}, {P0: 19}, TOPIC_IDS), TopicState({}, {}, {})],
)
def test_another_topic_of_the_name(topics: TopicState) -> None:
    with pytest.raises(TopicRecreated, match="another topic of this name"):
        wanted_ranges(committed(2), topics, LANDED, {P0: 7}, None, whole=True)


def test_partition_that_was_never_read() -> None:
    with pytest.raises(ConfigurationError, match="nothing of it is landed"):
        ranges({TopicPartition("t", 9): 7}, None, whole=True)


def placed(known: list[LandedBatch], tp: TopicPartition, first: int, end: int) -> list[tuple[int, int, int]]:
    """Offset, batch and position of these records."""
    count = end - first
    columns = [pa.array([tp.topic] * count), pa.array([tp.partition] * count, pa.int32()), pa.array(range(first, end))]
    records = pa.RecordBatch.from_arrays(columns, ["topic", "partition", "offset"])
    found = places(known, TOPIC_IDS, {tp: OffsetRange(first, end)}).spread(records)
    return sorted(zip(*(found.column(name).to_pylist() for name in ("offset", BATCH, POSITION)), strict=True))


def test_a_record_keeps_its_place() -> None:
    assert placed(LANDED, P0, 14, 16) == [(14, 1, 4), (15, 2, 0)]
    assert placed(LANDED, P1, 9, 11) == [(9, 1, 14), (10, 2, 5)]


def test_what_was_not_landed_stands_right_before_the_batch_after_it() -> None:
    assert placed(LANDED, P0, 8, 11) == [(8, 1, -2), (9, 1, -1), (10, 1, 0)]
    assert landed_from(LANDED, TOPIC_IDS)[P0] == 10
    # Retention forgets batch 1.
    assert placed(LANDED[1:], P0, 13, 16) == [(13, 2, -12), (14, 2, -11), (15, 2, 0)]
    assert placed(LANDED[1:], P1, 8, 11) == [(8, 2, -2), (9, 2, -1), (10, 2, 5)]
    skipping = [*LANDED, taking(3, (25, 25), (20, 20), continues={}), taking(4, (25, 30), (20, 20))]
    assert placed(skipping, P0, 24, 26) == [(24, 3, -1), (25, 4, 0)]
    assert landed_from(skipping, TOPIC_IDS)[P0] == 25


def test_a_record_that_was_landed_twice_has_two_places() -> None:
    back = [*LANDED, taking(3, (12, 12), (20, 20), continues={}), taking(4, (12, 22), (20, 20))]
    assert placed(back, P0, 14, 16) == [(14, 1, 4), (14, 4, 2), (15, 2, 0), (15, 4, 3)]
    assert landed_from(back, TOPIC_IDS)[P0] == 10


def test_the_offsets_of_a_batch_are_read_once_for_all_partitions() -> None:
    """They may be in a file, and a topic may have thousands of partitions."""
    tps = [TopicPartition("t", n) for n in range(300)]
    asked = list[int]()

    def of(number: int) -> LandedBatch:
        def decode() -> Ranges:
            asked.append(number)
            return dict.fromkeys(tps, OffsetRange(10 * number - 10, 10 * number))

        return landed(number, ranges=Later(decode), watermark=Watermark())

    batches = [of(number) for number in range(1, 201)]
    state = replace(committed(2), offsets=dict.fromkeys(tps, 2000))
    kafka = TopicState(dict.fromkeys(tps, 0), dict.fromkeys(tps, 2000), TOPIC_IDS)
    found = wanted_ranges(state, kafka, batches, dict.fromkeys(tps, 1500), None, whole=True)
    assert found == dict.fromkeys(tps, OffsetRange(1500, 2000))
    assert sorted(asked) == list(range(1, 201))
    assert places(batches, TOPIC_IDS, found).total == 500 * len(tps)


def test_batches_of_another_topic_of_the_name_and_revising_ones_say_nothing() -> None:
    old = [taking(1, (0, 30), topic_ids={"t": "old"}), taking(2, (3, 9)), taking(3, (9, 9), revises=2)]
    assert placed(old, P0, 2, 5) == [(2, 2, -1), (3, 2, 0), (4, 2, 1)]


def test_what_a_replay_will_do_is_shown_before() -> None:
    hour = datetime.fromtimestamp(0, UTC)
    batches = [landed(number) for number in (1, 2, 3)]
    found = ahead.landed_between(batches, hour + timedelta(seconds=2), hour + timedelta(seconds=3))
    assert [batch.number for batch in found] == [2]
    shown = ahead.of_batches(batches)
    assert "batches 1 to 3, landed 1970-01-01 00:00:01 to 1970-01-01 00:00:03 UTC, 60 records of whatever" in shown
    assert "nothing was landed then" in ahead.of_batches([])
    assert "11 offsets (t[0] 7 to 18)" in ahead.of_kafka({P0: OffsetRange(7, 18)}).replace("t-0", "t[0]")
    assert "nothing is to be read" in ahead.of_kafka({})


def test_records_that_another_writer_has_written_are_not_read_again() -> None:
    """An imported pipeline begins at offsets, in tables that its connector has filled."""
    start = {"offsets": {P0.topic: {P0.partition: 10}}}

    def check(mode: str, source: dict[str, object], first: int) -> None:
        made = specs.spec(specs.table(mode=mode), columns={"id": "long"}, key={"id": "long"}, source=source)
        check_start(made, {P0: OffsetRange(first, 20)})

    check("append", {"start": start}, 10)
    check("append", {}, 3)
    check("upsert", {"start": start}, 3)
    for mode in ("append", "delete"):
        with pytest.raises(ConfigurationError, match=rf"{P0}=10.* would come twice.* Fix: begin at `source.start`; or"):
            check(mode, {"start": start}, 9)
