"""What benchmarks measure with: services, logs of varied records, and pipelines that read them."""

from __future__ import annotations

import gc
import os
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.connections_file import load_connections
from jobs.pipeline import Pipeline
from jobs.spark.spark_tasks import Batches, numbered, numbers, report_row, task_reports
from jobs.spec.pipeline import PipelineSpec
from orchestration.cli import GARBAGE_THRESHOLD
from resources.connections import Connections, KafkaConnection, SparkConnection
from resources.local import stack
from resources.local.service import Lake
from resources.spark import open_session
from tests.benchmarks._records import COLUMNS, as_json, rows
from tests.benchmarks._records import numbers as as_numbers

PARTITIONS = 4
_AT_ONCE, _WAITING, _ONE_PROCESS = 100_000, 1_000_000, 500_000
_WARM_JOBS = 60


@contextmanager
def services(*names: str, home: Path | None = None, lake: Lake | None = None) -> Iterator[tuple[Path, Connections]]:
    """These services in this data folder, where they stay; or in one of their own, with a lake of this kind. Spark's
    server is warm, as scheduled runs have made it."""
    with tempfile.TemporaryDirectory() as folder:
        at = home.absolute() if home else Path(folder)
        os.environ["BATCHMERGE_HOME"] = str(at)
        gc.set_threshold(GARBAGE_THRESHOLD)  # as in the processes of runs
        stack.up(at, names, print, lake)
        try:
            connections = load_connections(at / "connections.yaml")
            if "spark" in names:
                _warm_up(connections)
            yield at, connections
        finally:
            if home is None:
                stack.down(at, print)


def _warm_up(connections: Connections) -> None:
    """Runs jobs like those of batches, until the server has compiled what they need."""
    spark = open_session(connections.get("spark", SparkConnection), "warm", {})
    for _ in range(_WARM_JOBS):
        task_reports(numbered(spark, 2), _report)
    spark.stop()


def _report(batches: Batches) -> Iterator[pa.RecordBatch]:
    yield report_row(list(numbers(batches)))


Write = Callable[[pa.Table], list[bytes]]
"""The records of rows; it can be pickled."""


def fill(
    connections: Connections,
    topic: str,
    ids: Iterable[int],
    turn: int = 0,
    partitions: int = PARTITIONS,
    write: Write = as_json,
) -> None:
    """Produces one record per id, keyed by it, in the ids' order; a key stays in its partition. Makes the topic where
    there is none."""
    servers = connections.get("kafka", KafkaConnection).bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    if topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(timeout=60)
    known = as_numbers(ids)
    if len(known) < _ONE_PROCESS:
        _produce(servers, topic, known, turn, partitions, write)
        return
    # Two processes, each with partitions of its own.
    halves = [known[known % 2 == n] for n in range(2)]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for sent in [pool.submit(_produce, servers, topic, half, turn, partitions, write) for half in halves]:
            sent.result()


def _produce(servers: str, topic: str, ids: Any, turn: int, partitions: int, write: Write) -> None:
    settings = {"linger.ms": 50, "queue.buffering.max.messages": _WAITING, "compression.type": "lz4"}
    producer = Producer({"bootstrap.servers": servers, **settings})
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        places = (part % partitions).tolist()
        records = zip(as_json(pa.table({"id": part})), write(rows(part, turn)), places, strict=True)
        messages = [{"key": key, "value": value, "partition": place} for key, value, place in records]
        sent = producer.produce_batch(topic, messages)
        assert sent == len(messages), f"{len(messages) - sent} records were not taken"
        while len(producer) > _WAITING - _AT_ONCE:
            producer.poll(0.1)
    left = producer.flush()
    assert not left, f"{left} records were not sent"


def pipeline(connections: Connections, topic: str, tables: Sequence[dict[str, Any]], **parts: object) -> Pipeline:
    """A new pipeline with these tables, under names of its own."""
    name = new_name()
    spec = PipelineSpec.model_validate(document(name, topic, tables, **parts))
    return Pipeline(name, spec, connections, run_id="bench")


def new_name() -> str:
    return f"bench_{uuid.uuid4().hex[:8]}"


def document(name: str, topic: str, tables: Sequence[dict[str, Any]], **parts: object) -> dict[str, Any]:
    """The attributes of its pipeline file."""
    return {
        "source": {
            "topics": [topic],
            "key": {"format": "json", "columns": {"id": "long"}},
            "value": {"format": "json", "columns": COLUMNS},
        },
        "changes": {"key": {"columns": ["id"]}},
        "tables": [{"table": f"bench.{name}_{table['mode']}", **table} for table in tables],
        **parts,
    }
