"""Dead letters and events reach their topics once, also where a source topic is forgotten or records are read again."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from jobs.dead_letters.topic import DeadLetterTopic
from jobs.events import role
from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from resources.connections import Connections
from tests.kit.command import Command
from tests.kit.dead_letters import read_all
from tests.kit.engine import Engine
from tests.kit.events import check_all_published, events
from tests.kit.flow import Flow
from tests.kit.records import COLUMNS, KEY, Record, bootstrap, produce, put
from tests.kit.waiting import PATIENCE, until

Forget = Callable[..., Engine]


@pytest.fixture
def two_topics(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> Engine:
    """An engine with a bad record in each of two topics."""
    source = {"key": {"columns": KEY}, "value": {"columns": COLUMNS}}
    topics = [topic("a"), topic("b")]
    flow = Flow(topics[0], ["append"], overrides={"source": {"topics": topics, **source}})
    for n, name in enumerate(topics):
        produce(bootstrap(connections), name, [Record(0, 1, f"{{{n}")])
    return Engine(flow, connections, spark)


@pytest.fixture
def forget(connections: Connections, batchmerge: Command) -> Forget:
    """The engine after the first topic was taken out of its source, with one more bad record in the other one."""

    def done(engine: Engine, deleted: bool, **parts: object) -> Engine:
        source = engine.document["source"]
        assert isinstance(source, dict)
        gone, left = source["topics"]
        if deleted:
            client = AdminClient({"bootstrap.servers": bootstrap(connections)})
            client.delete_topics([gone])[gone].result(timeout=PATIENCE)
            until(lambda: gone not in client.list_topics(timeout=PATIENCE).topics, what=f"end of {gone}")
        without = engine.edited(source={**source, "topics": [left]}, **parts)
        code, output = batchmerge(without, "offsets", "reset", "", "--topic", gone, "--to", "earliest", "--yes")
        assert code == 0, output
        produce(bootstrap(connections), left, [Record(0, 1, "{2")])
        return without

    return done


def sent(connections: Connections, queue: str, least: int) -> list[bytes | None]:
    return [message.value() for message in read_all(connections, queue, least)]


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "forgotten"])
def test_dead_letters_of_before_a_topic_was_forgotten(
    deleted: bool, two_topics: Engine, forget: Forget, connections: Connections, topic: Callable[..., str]
) -> None:
    """Kafka takes no offsets of a deleted topic, and the first topic's had the position."""
    queue: dict[str, object] = {"topic": topic("dlq")}
    # A dead-letter topic that is named later gets those of before, too.
    (two_topics if deleted else two_topics.edited(dead_letters=queue)).advance()
    left = forget(two_topics, deleted, dead_letters=queue)
    left.advance()
    assert DeadLetterTopic(left.pipeline).first_unsent() is None
    assert sent(connections, str(queue["topic"]), 3) == [b"{0", b"{1", b"{2"]


def test_events_of_before_a_topic_was_deleted(
    two_topics: Engine, forget: Forget, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are so many that the first ones go in a transaction of their own."""
    monkeypatch.setattr(role, "_AT_ONCE", 1)
    two_topics.edited(control={"enabled": False}).advance()
    control = f"control-{uuid.uuid4().hex[:8]}"
    left = forget(two_topics, deleted=True, control={"topic": control})
    left.advance()
    check_all_published(left.pipeline, events(connections, control))


def test_what_becomes_a_dead_letter_when_it_is_read_again_is_sent_too(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    """Records from before the start, and one that a stricter file refuses; but none a second time."""
    queue = topic("dlq")
    flow = Flow(topic(), ["upsert"], overrides={"dead_letters": {"topic": queue}})
    engine = Engine(flow, connections, spark)
    source = engine.document["source"]
    assert isinstance(source, dict)
    late = engine.edited(source={**source, "start": {"offsets": {flow.topic: {0: 2}}}})
    late.produce(put(1), Record(0, 2, "{before"), put(3, ""), Record(0, 4, "{landed"))
    late.advance()
    assert sent(connections, queue, 1) == [b"{landed"]
    refuses = "select *, case when name = '' then 'no name' end as _refused from records"
    strict = late.edited(source={**source, "transform": refuses})
    for _ in range(2):
        reread_from_kafka(strict.pipeline, from_offsets({TopicPartition(flow.topic, 0): 0}))
        strict.produce(Record(0, 5, "{last"))
        strict.advance()
    landed, before, refused, *last = sent(connections, queue, 5)
    assert (landed, before, last) == (b"{landed", b"{before", [b"{last"] * 2)
    assert refused
    assert json.loads(refused)["id"] == 3
    # All of them once more, in another order: they are sent after they were read again.
    queue = topic("dlq")
    strict.edited(dead_letters={"topic": queue}, control={"group_prefix": "other-"}).advance()
    assert Counter(sent(connections, queue, 5)) == Counter([landed, before, refused, *last])
