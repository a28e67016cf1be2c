"""Fixed costs of many topic-partitions, in one topic and in many topics: a small batch with new records in all of them,
from the plan to the table's commit with its control events, on services that are warm; beside it the same records of a
topic with 4 partitions.
"""

from __future__ import annotations

import time
import uuid
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.pipeline import Pipeline
from resources.connections import Connections, KafkaConnection
from tests.benchmarks._records import COLUMNS, as_json, numbers, rows
from tests.benchmarks._report import Measure, report
from tests.benchmarks._workload import PARTITIONS, pipeline, services
from tests.benchmarks.small_batches import advance

# Kafka makes no more than some thousand partitions in one request.
_AT_ONCE = 50


@dataclass
class Source:
    """Topics with so many partitions each, and a pipeline that reads them all."""

    pipeline: Pipeline
    servers: str
    topics: Sequence[str]
    partitions: int
    seconds: list[float] = field(default_factory=list)

    def batch(self, count: int) -> None:
        """Lands and merges so many records, dealt out to all topic-partitions."""
        self._produce(count)
        began = time.monotonic()
        advance(self.pipeline, count)
        self.seconds.append(time.monotonic() - began)

    def _produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 50})
        ids = numbers(range(count))
        keys, values = as_json(pa.table({"id": ids})), as_json(rows(ids))
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            partition, topic = divmod(number % (len(self.topics) * self.partitions), len(self.topics))
            producer.produce(self.topics[topic], value, key, partition=partition)
        left = producer.flush()
        assert not left, f"{left} records were not sent"


def measure(options: Namespace) -> Iterator[Measure]:
    with services("kafka", "spark", home=options.home) as (_, connections):
        with source(connections, 1, PARTITIONS) as few:
            for _ in range(options.turns + 2):
                few.batch(options.partitions)
        for topics in (1, options.topics):
            with source(connections, topics, options.partitions // topics) as many:
                for _ in range(options.turns + 2):
                    many.batch(options.partitions)
            where = "1 topic" if topics == 1 else f"{topics:,} topics"
            yield Measure(
                what=f"a record in each of {options.partitions:,} topic-partitions, {where}",
                unit="s",
                turns=tuple(many.seconds[2:]),  # the first two warm up
                beside={f"{PARTITIONS} partitions": tuple(few.seconds[2:])},
            )


@contextmanager
def source(connections: Connections, topics: int, partitions: int) -> Iterator[Source]:
    """Made and deleted again: a broker has not room for all of them at once."""
    servers = connections.get("kafka", KafkaConnection).bootstrap_servers
    admin, names = AdminClient({"bootstrap.servers": servers}), [_name() for _ in range(topics)]
    for first in range(0, topics, _AT_ONCE):
        for made in admin.create_topics([NewTopic(n, partitions) for n in names[first : first + _AT_ONCE]]).values():
            made.result(timeout=120)
    formats = {"key": {"format": "json", "columns": {"id": "long"}}, "value": {"format": "json", "columns": COLUMNS}}
    tables = [{"kind": "iceberg", "mode": "append"}]
    reads = {"topics": names, **formats}
    yield Source(pipeline(connections, names[0], tables, changes={}, source=reads), servers, names, partitions)
    for gone in admin.delete_topics(names).values():
        gone.result(timeout=120)


def _name() -> str:
    return f"partitions-{uuid.uuid4().hex[:8]}"


if __name__ == "__main__":
    report(__doc__, measure, partitions=(5_000, 40), topics=(500, 4), turns=(5, 1))
