"""5,000 topic-partitions in one pipeline: what is decided and stored stays small, and comes back as it was."""

from __future__ import annotations

import pickle
import random
from functools import partial
from unittest.mock import patch

import pytest

from jobs import offsets
from jobs.batch import Batch, CommittedState, Counts, LandedBatch
from jobs.iceberg.history import state_properties
from jobs.landed_properties import landed_from_properties, landed_to_properties
from jobs.landing.batch_positions import BatchPositions
from jobs.landing.read_task import ReadTask, packed, unpacked
from jobs.landing.splits import plan_shares
from jobs.landing.task_report import RecordsRead, TaskReport
from jobs.lineage import next_batches
from jobs.offsets import Offsets, TopicPartition, total
from jobs.planning.plan import TopicState, plan_batch
from jobs.watermark import Watermark
from resources.connections import KafkaConnection
from resources.kafka import KafkaCluster

HOUR = 3_600_000


def log(topics: int, partitions: int) -> tuple[CommittedState, TopicState]:
    """A pipeline that has read some of every partition, and topics that have got up to 1,000 records more in each."""
    dice = random.Random(topics)
    read = {
        TopicPartition(f"orders.of-shop-{t}", p): dice.randrange(10**9, 2 * 10**9)
        for t in range(topics)
        for p in range(partitions)
    }
    ids = {f"orders.of-shop-{t}": f"{t:022d}" for t in range(topics)}
    times = {tp: 1_700_000_000_000 + dice.randrange(HOUR) for tp in read}
    committed = CommittedState("p", 1, "c1", read, ids, "hash", Watermark(times, 1))
    stable = {tp: offset + dice.randrange(1000) for tp, offset in read.items()}
    return committed, TopicState(dict.fromkeys(read, 0), stable, ids)


def landed(committed: CommittedState, topics: TopicState) -> LandedBatch:
    batch = plan_batch("p", "hash", committed, 1, topics, _none, max_records=200_000, now=2)
    assert isinstance(batch, Batch)
    seen = dict.fromkeys(batch.ranges, 1700000000000 + HOUR)
    return LandedBatch(batch, Counts(), committed.watermark.advance(batch.ranges, seen, topics.stable, 2), 7)


def _none(partitions: list[TopicPartition]) -> Offsets:
    assert partitions == []
    return {}


@pytest.mark.parametrize(("topics", "partitions"), [(50, 100), (1, 5000), (5000, 1)])
def test_batch_and_its_summary(topics: int, partitions: int) -> None:
    committed, kafka = log(topics, partitions)
    made = landed(committed, kafka)
    assert total(made.batch.ranges) == 200_000
    assert all(len(r) for tp, r in made.batch.ranges.items() if kafka.stable[tp] > r.start), "none is starved"
    summary = landed_to_properties(made)
    assert landed_from_properties(summary, 7) == made
    assert next_batches("t", committed, [made], False) == [made]
    longest = max(len(value) for name, value in summary.items() if name != "batchmerge.topic-ids")
    assert longest < (36_000 if topics < 5000 else 60_000)


def test_state_is_compressed_once_for_a_commit() -> None:
    made = landed(*log(1, 5000))
    after = CommittedState.after(made)
    with patch.object(offsets, "encode", wraps=offsets.encode) as encoded:
        summary, mirrored = landed_to_properties(made, after), state_properties(after, "main")
    assert encoded.call_count == 3, "offsets, record times, lengths"
    assert summary["batchmerge.offsets"] in mirrored.values()
    assert summary == landed_to_properties(made)


@pytest.mark.parametrize(("topics", "partitions"), [(1, 5000), (5000, 1)])
def test_what_travels_to_each_task(topics: int, partitions: int) -> None:
    ranges = landed(*log(topics, partitions)).batch.ranges
    kafka = KafkaCluster("kafka", KafkaConnection(kind="kafka", bootstrap_servers="nowhere:1"))
    task = ReadTask(kafka, [packed(ranges)], False)
    positions = BatchPositions.of(ranges)
    assert pickle.loads(pickle.dumps(positions)) == positions
    assert unpacked(task.shares[0]) == {tp: (r.start, r.end) for tp, r in ranges.items()}
    report = TaskReport({tp: RecordsRead(len(r), None if tp.partition % 2 else 7, r) for tp, r in ranges.items()})
    assert pickle.loads(pickle.dumps(report)) == report
    assert pickle.loads(pickle.dumps(TaskReport())) == TaskReport()
    for travels in (task, positions, report):
        assert pickle.dumps(travels).count(b"TopicPartition") == 0, "arrays, no objects"


@pytest.mark.parametrize(("topics", "partitions"), [(1, 5000), (5000, 1)])
def test_what_travels_does_not_grow_with_the_number_of_tasks(topics: int, partitions: int) -> None:
    ranges = landed(*log(topics, partitions)).batch.ranges
    one, many = ([packed(share) for share in plan_shares(ranges, partial(int, cores), 1 << 40)] for cores in (1, 128))
    assert len(many) == 256
    assert len(pickle.dumps(many)) < 3 * len(pickle.dumps(one))
    assert sum(len(unpacked(share)) for share in many) >= len(ranges)
