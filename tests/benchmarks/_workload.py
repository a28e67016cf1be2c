"""What benchmarks measure with: services, a log of small records, and pipelines that read it."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from resources.connections import Connections, KafkaConnection, load_connections
from resources.local import stack

PARTITIONS = 4
COLUMNS = {"id": "long", "carrier": "string", "origin": "string", "note": "string", "delay": "long", "dist": "double"}


@contextmanager
def services(*names: str, home: Path | None = None) -> Iterator[tuple[Path, Connections]]:
    """These services in this data folder, where they stay; or in one of their own."""
    with tempfile.TemporaryDirectory() as folder:
        at = home.absolute() if home else Path(folder)
        os.environ["BATCHMERGE_HOME"] = str(at)
        stack.up(at, names, print)
        try:
            yield at, load_connections(at / "connections.yaml")
        finally:
            if home is None:
                stack.down(at, print)


def fill(connections: Connections, topic: str, ids: Iterator[int]) -> int:
    """Produces one 110-byte JSON record per id, keyed by it; a key stays in its partition."""
    servers = connections.get("kafka", KafkaConnection).bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    if topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(timeout=30)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    size = 0
    for n in ids:
        head = b'{"id":%d,"carrier":"UA","origin":"EWR","delay":%d,"dist":%d.5,"note":"' % (n, n % 90, n)
        value = head + b"a" * (108 - len(head)) + b'"}'
        size = len(value)
        producer.produce(topic, key=b'{"id":%d}' % n, value=value, partition=n % PARTITIONS)
        if n % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    return size


def pipeline(connections: Connections, topic: str, tables: Sequence[dict[str, Any]], **parts: object) -> Pipeline:
    """A new pipeline with these tables, under names of its own."""
    name = f"bench_{uuid.uuid4().hex[:8]}"
    document = {
        "source": {
            "topics": [topic],
            "key": {"format": "json", "columns": {"id": "long"}},
            "value": {"format": "json", "columns": COLUMNS},
        },
        "changes": {"key": {"columns": ["id"]}},
        "tables": [{"table": f"bench.{name}_{table['mode']}", **table} for table in tables],
        "control": {"enabled": False},
        **parts,
    }
    return Pipeline(name, PipelineSpec.model_validate(document), connections, run_id="bench")
