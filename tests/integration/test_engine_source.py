"""What Kafka can do to a pipeline: transactions, gaps, growth, retention, another topic of the same name, starts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from itertools import islice

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.sql import SparkSession

from jobs import protocol
from resources.connections import Connections
from resources.errors import ConfigurationError, OffsetsGone, SourceError, TopicMissing, TopicRecreated
from tests.kit import model
from tests.kit.command import Command
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.interrupting import at_failpoints
from tests.kit.records import bootstrap, forget_producers, produce, put
from tests.kit.waiting import PATIENCE, until


@pytest.fixture
def engine(connections: Connections, spark: SparkSession) -> Callable[..., Engine]:
    def make(topic: str, modes: tuple[str, ...] = ("append",), start: object = None, **options: object) -> Engine:
        flow = Flow(topic, list(modes), **options)  # type: ignore[arg-type]
        made = Engine(flow, connections, spark)
        return made.with_source(start=start) if start else made

    return make


def test_a_landing_ends_where_kafka_was_when_it_began(topic: Callable[..., str], engine: Callable[..., Engine]) -> None:
    """Else the tables of a busy source would wait for ever."""
    one = engine(topic(), max_records=2)
    one.produce(put(1), put(2), put(3))
    landed = []
    for batch in islice(protocol.land(one.pipeline, 0), 4):
        landed.append(batch.counts.read)
        one.produce(put(4), put(5))
    # The second batch may be planned before the first one is landed, and what was produced after it.
    assert (landed[0], len(landed)) == (2, 2)
    assert sum(landed) + sum(batch.counts.read for batch in one.land()) == 7


def test_only_committed_transactions_are_read_and_their_gaps_are_no_loss(
    connections: Connections, topic: Callable[..., str], engine: Callable[..., Engine]
) -> None:
    servers, one = bootstrap(connections), engine(topic())
    name, who = one.flow.topic, f"tx-{uuid.uuid4().hex[:6]}"
    kept = [put(1), put(2)]
    produce(servers, name, kept, transaction=who)
    produce(servers, name, [put(3), put(4)], transaction=who, abort=True)
    (first,) = one.advance()
    assert (first.counts.read, first.counts.landed, first.counts.gaps) == (2, 2, 4)
    assert one.read("append") == model.expected(kept, "append")

    # Nothing but an aborted transaction: a batch of gaps alone.
    produce(servers, name, [put(5)], transaction=who, abort=True)
    (second,) = one.advance()
    assert (second.counts.read, second.counts.landed, second.counts.gaps) == (0, 0, 2)

    # An open transaction holds back what comes after it, until it is decided.
    producer = Producer({"bootstrap.servers": servers, "transactional.id": who + "-open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(name, key=b'{"id": 6}', value=b'{"id": 6, "name": "open", "amount": 1, "op": "u"}', partition=0)
    assert producer.flush(PATIENCE) == 0
    after = [put(7)]
    produce(servers, name, after)
    assert one.advance() == []
    producer.commit_transaction(60)
    until(lambda: bool(one.land()))
    one.merge_all()
    assert one.read("append") == sorted([*model.expected([*kept, *after], "append"), (6, "open", 1.0)])


def test_topic_whose_partitions_grow(
    connections: Connections,
    topic: Callable[..., str],
    admin: AdminClient,
    engine: Callable[..., Engine],
    batchmerge: Command,
) -> None:
    servers, name = bootstrap(connections), topic()
    strict = engine(name, ("upsert",))
    append = engine(name, ("append",))
    records = [put(1, "before")]
    produce(servers, name, records)
    for one in (append, strict):
        one.advance()
    admin.create_partitions([NewPartitions(name, 2)])[name].result(timeout=30)
    until(lambda: len(append.pipeline.topic_state().partitions) == 2)
    records.append(put(2, "after", partition=1))
    produce(servers, name, records[1:])

    append.advance()
    assert append.read("append") == model.expected(records, "append")

    with pytest.raises(SourceError, match=f"{name}-1") as caught:
        strict.advance()
    assert "changes.order_by" in caught.value.remedy

    arrival = strict.edited(changes={**strict.document["changes"], "order_by": "arrival"})
    assert f"offsets reset {strict.flow.name} --to committed --accept-changes --yes" in caught.value.remedy
    code, output = batchmerge(arrival, "offsets", "reset", "", "--to", "committed", "--accept-changes", "--yes")
    assert code == 0, output
    arrival.advance()
    assert arrival.read("upsert") == model.expected(records, "upsert")


def test_expired_start_is_never_jumped_over(
    connections: Connections, topic: Callable[..., str], admin: AdminClient, engine: Callable[..., Engine]
) -> None:
    servers, one = bootstrap(connections), engine(topic())
    name = one.flow.topic
    produce(servers, name, [put(1)])
    one.advance()
    produce(servers, name, [put(n) for n in range(2, 8)])
    for pending in admin.delete_records([KafkaPartition(name, 0, 4)]).values():
        pending.result(timeout=30)
    with pytest.raises(OffsetsGone, match="offset 1 is wanted, but Kafka has only 4 to 7") as caught:
        one.advance()
    assert caught.value.facts == {"topic": name, "partition": 0, "wanted": 1, "first": 4, "end": 7}
    assert one.read("append") == [(1, "a", 1.0)]
    # A pipeline that begins now takes what there is.
    late = engine(name)
    late.advance()
    assert [row[0] for row in late.read("append")] == [5, 6, 7]
    with pytest.raises(OffsetsGone, match="start the pipeline at `earliest`"):
        engine(name, start={"offsets": {name: {0: 2}}}).advance()


def test_recreated_topic_is_noticed(
    connections: Connections, topic: Callable[..., str], admin: AdminClient, engine: Callable[..., Engine]
) -> None:
    servers, one = bootstrap(connections), engine(topic())
    name = one.flow.topic
    produce(servers, name, [put(1)])
    one.advance()
    admin.delete_topics([name])[name].result(timeout=30)
    until(lambda: name not in admin.list_topics(timeout=10).topics)
    with pytest.raises(TopicMissing, match=name):
        one.advance()

    def made_again() -> bool:
        forget_producers()
        return admin.create_topics([NewTopic(name, 1, 1)])[name].exception(timeout=30) is None

    until(made_again)
    produce(servers, name, [put(2), put(3)])
    with pytest.raises(TopicRecreated, match="recreated"):
        one.advance()
    assert one.read("append") == [(1, "a", 1.0)]

    def recreate(point: str) -> None:
        if point == "land.begun":
            admin.delete_topics([name])[name].result(timeout=30)
            until(made_again)
            produce(servers, name, [put(4), put(5)])

    late = engine(name)
    with at_failpoints(recreate), pytest.raises(TopicRecreated, match="while batch 1"):
        late.advance()
    late.advance()
    assert [row[0] for row in late.read("append")] == [4, 5], "nothing of the topic before it is known"


def test_where_a_pipeline_begins(
    connections: Connections, topic: Callable[..., str], engine: Callable[..., Engine]
) -> None:
    servers, name = bootstrap(connections), topic(partitions=2)
    produce(servers, name, [put(1), put(2), put(3, partition=1)])
    latest = engine(name, start="latest")
    named = engine(name, start={"offsets": {name: {0: 1}}})
    (pinned,) = latest.advance()
    assert (pinned.number, pinned.counts.read, len(latest.read("append"))) == (1, 0, 0)
    named.advance()
    assert [row[0] for row in named.read("append")] == [2, 3]

    moment = time.time()
    until(lambda: time.time() > moment + 0.01)
    since = engine(name, start={"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment + 1))})
    assert since.land() == []
    until(lambda: time.time() > moment + 2)
    produce(servers, name, [put(4), put(5, partition=1)])
    for one in (latest, since):
        one.advance()
        assert [row[0] for row in one.read("append")] == [4, 5]

    with pytest.raises(ConfigurationError, match=f"{name}-7"):
        engine(name, start={"offsets": {name: {7: 1}}}).advance()
    with pytest.raises(SourceError, match="offset 99 is wanted"):
        engine(name, start={"offsets": {name: {0: 99}}}).advance()


def test_several_topics_and_a_pattern(
    connections: Connections, topic: Callable[..., str], engine: Callable[..., Engine]
) -> None:
    prefix = f"many{uuid.uuid4().hex[:6]}"
    servers, a = bootstrap(connections), topic(f"{prefix}-a")
    one = engine(a)
    one = one.with_source(topics=[], pattern=f"{prefix}-.*")
    produce(servers, a, [put(1)])
    one.advance()
    # A topic that comes later joins from its first record.
    b = topic(f"{prefix}-b")
    produce(servers, b, [put(2)])
    until(lambda: len(one.pipeline.topic_state().topic_ids) == 2)
    one.advance()
    assert [row[0] for row in one.read("append")] == [1, 2]
    with pytest.raises(TopicMissing, match="no topic matches"):
        one.with_source(pattern="nothing-.*").land()
    everything = one.with_source(pattern=".*").pipeline.topic_state().topic_ids
    assert {a, b} <= set(everything)
    assert not {"__consumer_offsets", "__transaction_state"} & set(everything), "Kafka's own topics are no source"
    queue = topic(f"{prefix}-dead")
    feeding = one.edited(dead_letters={"topic": queue}, control={"topic": b})
    assert set(feeding.pipeline.topic_state().topic_ids) == {a}, "nor are those that the pipeline writes to itself"
