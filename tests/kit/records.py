"""Records for the tests, and a producer that keeps to a given partition and transaction."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from resources.connections import Connections, KafkaConnection
from tests.kit.topics import make_topic, until_decided
from tests.kit.waiting import PATIENCE, until

COLUMNS = {"id": "long", "name": "string", "amount": "double", "op": "string"}
KEY = {"id": "long"}


@dataclass(frozen=True)
class Record:
    """One record to produce; `value` None is a tombstone, a string is produced as it is (malformed)."""

    partition: int
    key: int | None
    value: dict[str, object] | str | None
    headers: tuple[tuple[str, bytes], ...] = ()


def put(key: int, name: object = "a", op: str = "u", partition: int = 0, **more: object) -> Record:
    return Record(partition, key, {"id": key, "name": name, "amount": 1, "op": op, **more})


def upserts(first: int, count: int) -> list[Record]:
    return [put(n, f"n{n}") for n in range(first, first + count)]


def bootstrap(connections: Connections) -> str:
    return connections.get("kafka", KafkaConnection).bootstrap_servers


_LARGE = {
    "enable.idempotence": True,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
    "reconnect.backoff.max.ms": 500,
}


def _transactional(servers: str, name: str) -> Producer:
    return Producer({**_LARGE, "bootstrap.servers": servers, "transactional.id": name})


@cache
def _idempotent(servers: str) -> Producer:
    """Kept: a new one waits half a second for its id, which it asks for before it is connected."""
    return Producer({**_LARGE, "bootstrap.servers": servers})


def forget_producers() -> None:
    """After a topic was deleted: sequence numbers of the kept producer are not those of another one of its name."""
    _idempotent.cache_clear()


def produce(
    servers: str,
    topic: str,
    records: Iterable[Record],
    transaction: str | None = None,
    abort: bool = False,
    timestamp: int = 0,
    headers: Sequence[tuple[str, bytes]] = (),
) -> None:
    """Produces in order; with `transaction`, as one Kafka transaction that is committed or aborted.

    Args:
        timestamp: of the records, in milliseconds; 0: now.
        headers: of each record, before its own.
    """
    producer = _transactional(servers, transaction) if transaction else _idempotent(servers)
    producer.list_topics(topic, PATIENCE)
    if transaction:
        # Once more: the first one connects, without which a producer asks in vain for its id, and again later.
        producer.list_topics(topic, PATIENCE)
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
    for record in records:
        value = record.value
        raw = value.encode() if isinstance(value, str) else None if value is None else json.dumps(value).encode()
        key = None if record.key is None else json.dumps({"id": record.key}).encode()
        sent: list[tuple[str, str | bytes | None]] = [*headers, *record.headers]
        producer.produce(topic, key=key, value=raw, partition=record.partition, timestamp=timestamp, headers=sent)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0, "records were not sent"
    if transaction:
        (producer.abort_transaction if abort else producer.commit_transaction)(PATIENCE)
        until_decided(servers, topic)


def recreate(connections: Connections, topic: str, partitions: int = 1) -> None:
    """Deletes the topic and makes another one of its name."""
    client = AdminClient({"bootstrap.servers": bootstrap(connections)})
    client.delete_topics([topic])[topic].result(timeout=PATIENCE)
    until(lambda: topic not in client.list_topics(timeout=PATIENCE).topics, what=f"end of {topic}")
    make_topic(client, topic, partitions)
    forget_producers()


def random_changes(seed: int, count: int, keys: int, partitions: int, bad: float = 0.02) -> list[Record]:
    """Inserts, updates, deletes (op and tombstone) and malformed records; a key stays in its partition."""
    dice = random.Random(seed)
    records = []
    for n in range(count):
        key = dice.randrange(keys)
        partition = key % partitions
        if dice.random() < bad:
            broken: Sequence[str] = ("{not json", '{"id": "x", "name": 7, "op": "u"}', '"text"')
            records.append(Record(partition, key, dice.choice(broken)))
            continue
        kind = dice.choices(["u", "c", "d", "tombstone"], [6, 3, 1, 1])[0]
        if kind == "tombstone":
            records.append(Record(partition, key, None))
        else:
            records.append(Record(partition, key, {"id": key, "name": f"n{n}", "amount": n / 4, "op": kind}))
    return records
