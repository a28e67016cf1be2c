"""Dead letters under test: records that a pipeline file cannot take before it is corrected, and a topic of them."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from resources.connections import Connections
from tests.kit.engine import Engine
from tests.kit.records import bootstrap

WHERE: dict[str, object] = {"metadata_columns": ["topic", "partition", "offset"]}


LARGE = 2**40


def narrowed(engine: Engine) -> tuple[Engine, Engine]:
    """The engine with a pipeline file whose `amount` is too narrow for some records, and after it was corrected."""
    columns = {"id": "long", "name": "string", "op": "string"}
    narrow, wide = (engine.with_value(columns={**columns, "amount": kind}) for kind in ("int", "long"))
    return narrow, wide


def read_all(servers: Connections | str, queue: str, least: int) -> list[Message]:
    """All committed messages of a topic with one partition; fails where there are fewer."""
    address = servers if isinstance(servers, str) else bootstrap(servers)
    settings = {"bootstrap.servers": address, "group.id": queue, "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(queue, 0, 0)])
    found = []
    try:
        while (message := consumer.poll(120)) is not None:
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF and len(found) >= least:
                return found
        raise AssertionError(f"{len(found)} messages came, {least} were expected")
    finally:
        consumer.close()
