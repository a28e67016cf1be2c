"""Dead letters after retention has removed their batches: what is shown of them, how they end, which batches wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from jobs.dead_letters.listing import list_dead_letters
from jobs.dead_letters.open_count import open_count
from jobs.dead_letters.retry import retry
from jobs.maintenance.run import maintain_landing
from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from jobs.verify.stale_keys import stale_keys
from resources.connections import Connections
from tests.kit.dead_letters import LARGE, narrowed, read_all
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.records import put

_MAINTENANCE = {"snapshots": {"keep_days": 1e-6, "keep_last": 1}, "landed": {"keep_days": 1e-6}}


def retain(engine: Engine) -> int:
    """Runs maintenance; how many batches are left."""
    done = {one.task: one for one in maintain_landing(engine.pipeline)}
    assert [str(one) for one in done.values() if one.problem] == []
    return int(str(done["landed"].counts["batches kept"]))


def open_offsets(engine: Engine) -> list[int]:
    found = [dead_letter.offset for dead_letter in list_dead_letters(engine.pipeline, 9)]
    assert open_count(engine.pipeline.intermediate) == len(found), "status and list show the same"
    return found


def stale(engine: Engine) -> int:
    pipeline = engine.pipeline
    (destination,) = pipeline.destinations()
    landed, session = pipeline.intermediate.landed().batches, pipeline.merge_context(destination).session
    return stale_keys(pipeline, destination, destination.committed(), landed, session)


@pytest.mark.slow
def test_a_key_stays_stale_after_its_batch_is_removed_until_a_later_change_comes(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    flow = Flow(topic(), ["upsert"], overrides={"maintenance": _MAINTENANCE, "control": {"enabled": False}})
    one, _ = narrowed(Engine(flow, connections, spark))
    found = list[int]()
    # The first key has no change after its dead letter, the second one has: both go with their batches.
    for records in (
        [put(1, "a")],
        [put(1, "b", amount=LARGE), put(2, "b", amount=LARGE)],
        [put(2, "c")],
        [put(3)],
        [put(1, "c")],
        [put(4)],
        [put(5)],
    ):
        one.produce(*records)
        one.advance()
        before = stale(one)
        assert retain(one) == 1
        assert stale(one) == before
        found.append(before)
    assert found == [0, 2, 1, 1, 0, 0, 0]
    assert open_offsets(one) == [1, 2]


@pytest.mark.slow
def test_dead_letters_of_removed_batches_end_when_their_records_are_read_again(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    flow = Flow(topic(), ["upsert"], overrides={"maintenance": _MAINTENANCE, "control": {"enabled": False}})
    before, after = narrowed(Engine(flow, connections, spark))
    before.produce(put(1, "a"), put(2, "b", amount=LARGE), put(3, "c", amount=LARGE))
    before.advance()
    before.produce(put(4, "d"))
    before.advance()
    assert retain(before) == 1
    assert open_offsets(before) == [1, 2]

    done = retry(after.pipeline)
    assert (done.tried, done.recovered, done.gone, done.first_gone) == (0, 0, 2, f"{flow.topic}-0=1")

    landed = reread_from_kafka(after.pipeline, from_offsets({TopicPartition(flow.topic, 0): 1}))
    assert landed
    assert landed.counts.recovered == 2
    after.merge_all()
    assert after.read("upsert") == [(1, "a", 1), (2, "b", LARGE), (3, "c", LARGE), (4, "d", 1)]
    assert (open_offsets(after), retry(after.pipeline).gone) == ([], 0)

    after.produce(put(5, "e"))
    after.advance()
    assert retain(after) == 1
    assert open_offsets(after) == [], "also when the batch that read them again is removed"


@pytest.mark.slow
def test_batches_whose_dead_letters_are_not_sent_to_their_topic_stay(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the dead letters with them, although their own time is over too."""
    name = topic()
    queue = f"{name}-dead"
    landed = {"keep_days": 1e-6, "dead_letters_keep_days": 1e-6}
    options = {"maintenance": {**_MAINTENANCE, "landed": landed}, "control": {"enabled": False}}
    unsent = {"topic": queue, "create_topic": False, "time_limit_seconds": 10}
    before, _ = narrowed(
        Engine(Flow(name, ["upsert"], overrides={**options, "dead_letters": unsent}), connections, spark)
    )
    before.produce(put(1, "a"))
    before.advance()
    before.produce(put(2, "b", amount=LARGE))
    before.advance()
    before.produce(put(3, "c"))
    before.advance()
    assert retain(before) == 2, "the one with the dead letter, and the newest"
    # Kafka forgets after a week how far they were sent; here nothing ever was.
    later = SimpleNamespace(time=lambda: time.time() + 8 * 24 * 3600)
    monkeypatch.setattr("jobs.dead_letters.topic.time", later)
    assert retain(before) == 2
    sending = before.edited(dead_letters={"topic": queue})
    sending.advance()
    assert [message.key() for message in read_all(connections, queue, 1)] == [b'{"id": 2}']
    assert open_offsets(sending) == [1]
    assert retain(sending) == 1
    assert open_offsets(sending) == []
