"""The fixed cost of many topic-partitions, in one topic and in many topics, for each kind of table: a small batch with
new records in all of them, and one with records in some of them. The time is from the plan to the table's commit with
its control events, on warm services. Beside it: the same records in a topic with 4 partitions.
"""

from __future__ import annotations

import time
import uuid
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.connections_file import load_connections
from jobs.pipeline import Pipeline
from resources.connections import Connections, KafkaConnection
from tests.benchmarks._records import COLUMNS, as_json, numbers, rows
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._workload import PARTITIONS, pipeline, services
from tests.benchmarks.small_batches import advance
from tests.kit.kinds import KINDS, runnable, with_others

# Kafka makes no more than some thousand partitions in one request.
_AT_ONCE = 50


@dataclass
class Source:
    """Topics with so many partitions each, and a pipeline for each kind that reads them all.

    Attributes:
        seconds: of each batch, by kind and number of records.
    """

    pipelines: Mapping[str, Pipeline]
    servers: str
    topics: Sequence[str]
    partitions: int
    seconds: dict[tuple[str, int], list[float]] = field(default_factory=lambda: defaultdict(list))

    def batch(self, count: int) -> None:
        """Lands and merges so many records, dealt out to all topic-partitions."""
        self._produce(count)
        for kind, p in self.pipelines.items():
            began = time.monotonic()
            advance(p, count)
            self.seconds[kind, count].append(time.monotonic() - began)

    def turns(self, kind: str, count: int) -> tuple[float, ...]:
        """Those of batches of so many records, without the first two, which warm up."""
        return tuple(self.seconds[kind, count][2:])

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
    kinds = [kind for name, kind in KINDS.items() if name in options.kinds and runnable(kind)]
    needed = ("kafka", "spark", *(kind.service for kind in kinds if kind.service))
    with services(*needed, home=options.home) as (home, _):
        connections, names = load_connections(with_others(home)), [kind.name for kind in kinds]
        counts = {options.partitions: "a record in each of", options.records: f"{options.records:,} records in"}
        with source(connections, names, 1, PARTITIONS) as few:
            for _ in range(options.turns + 2):
                for count in counts:
                    few.batch(count)
        for topics in (1, options.topics):
            with source(connections, names, topics, options.partitions // topics) as many:
                for _ in range(options.turns + 2):
                    for count in counts:
                        many.batch(count)
            where = "1 topic" if topics == 1 else f"{topics:,} topics"
            for count, records in counts.items():
                for kind in names:
                    yield Measure(
                        what=f"{records} {options.partitions:,} topic-partitions, {where}, into {kind}",
                        unit="s",
                        turns=many.turns(kind, count),
                        beside={f"{PARTITIONS} partitions": few.turns(kind, count)},
                    )


@contextmanager
def source(connections: Connections, kinds: Sequence[str], topics: int, partitions: int) -> Iterator[Source]:
    """Made and deleted again: a broker has not room for all of them at once."""
    servers = connections.get("kafka", KafkaConnection).bootstrap_servers
    admin, names = AdminClient({"bootstrap.servers": servers}), [_name() for _ in range(topics)]
    for first in range(0, topics, _AT_ONCE):
        for made in admin.create_topics([NewTopic(n, partitions) for n in names[first : first + _AT_ONCE]]).values():
            made.result(timeout=120)
    while not admin.list_topics(timeout=60).topics.keys() >= set(names):
        time.sleep(0.2)  # the controller has made them, the broker does not say so yet
    formats = {"key": {"format": "json", "columns": {"id": "long"}}, "value": {"format": "json", "columns": COLUMNS}}
    reads = {"topics": names, **formats}
    pipelines = {
        kind: pipeline(connections, names[0], [{"kind": kind, "mode": "append"}], changes={}, source=reads)
        for kind in kinds
    }
    yield Source(pipelines, servers, names, partitions)
    for gone in admin.delete_topics(names).values():
        gone.result(timeout=120)


def _name() -> str:
    return f"partitions-{uuid.uuid4().hex[:8]}"


SIZES: Sizes = {
    "kinds": (["iceberg", "clickhouse", "bigquery"], ["iceberg", "clickhouse", "bigquery"]),
    "partitions": (5_000, 40),
    "records": (1_000, 10),
    "topics": (500, 4),
    "turns": (5, 1),
}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)
