"""What benchmarks measure with: services, logs of varied records, and pipelines that read them."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from resources.connections import Connections, KafkaConnection, load_connections
from resources.local import stack
from tests.benchmarks._records import COLUMNS, as_json, numbers, rows

PARTITIONS = 4
_AT_ONCE, _WAITING, _PROCESSES = 100_000, 1_000_000, 2


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


def create(connections: Connections, topic: str, partitions: int = PARTITIONS) -> None:
    """An empty topic whose records are compressed by lz4; nothing to do where it is there."""
    admin = AdminClient({"bootstrap.servers": _servers(connections)})
    if topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(timeout=60)


def fill(connections: Connections, topic: str, ids: Iterable[int], turn: int = 0) -> None:
    """Produces one record per id, keyed by it, in the ids' order; a key stays in its partition."""
    create(connections, topic)
    known = numbers(ids)
    work = [
        (_servers(connections), topic, known[start : start + _AT_ONCE], turn)
        for start in range(0, len(known), _AT_ONCE)
    ]
    if len(work) < 4:
        _produce(work)
        return
    # One process per half of the partitions: so each partition has the ids' order.
    halves = [[(s, t, ids[ids % _PROCESSES == n], turn) for s, t, ids, turn in work] for n in range(_PROCESSES)]
    with ProcessPoolExecutor(_PROCESSES, get_context("spawn")) as pool:
        list(pool.map(_produce, halves))


def _produce(work: list[tuple[str, str, Any, int]]) -> None:
    settings = {"linger.ms": 50, "queue.buffering.max.messages": _WAITING, "compression.type": "lz4"}
    producer = Producer({"bootstrap.servers": work[0][0], **settings} if work else settings)
    for _, topic, ids, turn in work:
        for partition in range(PARTITIONS):
            mine = ids[ids % PARTITIONS == partition]
            keys = as_json(pa.table({"id": mine}))
            values = as_json(rows(mine, turn))
            messages = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
            sent = producer.produce_batch(topic, messages, partition)
            while len(producer) > _WAITING - 2 * _AT_ONCE:
                producer.poll(0.1)
            assert sent == len(messages), f"{len(messages) - sent} records were not taken"
    left = producer.flush()
    assert not left, f"{left} records were not sent"


def _servers(connections: Connections) -> str:
    return connections.get("kafka", KafkaConnection).bootstrap_servers


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
        **parts,
    }
    return Pipeline(name, PipelineSpec.model_validate(document), connections, run_id="bench")
