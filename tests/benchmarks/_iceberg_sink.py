"""The Apache Iceberg sink of Kafka Connect: one log into one table, in a Connect process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.table import Table

from resources.connections import Connections, IcebergConnection, KafkaConnection
from resources.local import processes
from resources.local.jars import Bundle, classpath, fetch
from resources.local.java import find_java
from resources.local.jvm import jvm
from resources.local.ports import free_port
from resources.local.service import HOST, Command
from tests.benchmarks._sink import Sink, SinkTable
from tests.benchmarks._spent import Spent, spent
from tests.benchmarks._visible import rows_in

_KAFKA, _ICEBERG, _HADOOP = "4.1.1", "1.12.0", "3.4.1"
LIBRARIES = Bundle(
    "iceberg-sink",
    (
        ("org.apache.iceberg", "iceberg-kafka-connect", _ICEBERG),
        ("org.apache.iceberg", "iceberg-parquet", _ICEBERG),
        ("org.apache.kafka", "connect-runtime", _KAFKA),
        ("org.apache.kafka", "connect-json", _KAFKA),
        ("org.apache.hadoop", "hadoop-client-api", _HADOOP),
        ("org.apache.hadoop", "hadoop-client-runtime", _HADOOP),
        ("org.xerial", "sqlite-jdbc", "3.46.1.0"),
    ),
)
VERSION = _ICEBERG
_PATIENCE = 400


def _worker(bootstrap: str, folder: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "1000",
        "listeners": f"http://{HOST}:{free_port(set())}",
        "plugin.discovery": "service_load",
        "consumer.auto.offset.reset": "earliest",
        "consumer.max.poll.records": "10000",
        "consumer.max.partition.fetch.bytes": "8388608",
    }


def _connector(topic: str, control: str, table: str, commit_ms: int, lake: IcebergConnection) -> dict[str, str]:
    return {
        # Its consumer group is named by it: under one name a second run would go on where the first one ended.
        "name": f"sink-{table}",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "2",
        "topics": topic,
        "iceberg.tables": table,
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": str(commit_ms),
        "iceberg.catalog": "lake",
        "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "iceberg.catalog.uri": "jdbc:" + (lake.uri or "").replace("sqlite:///", "sqlite:"),
        "iceberg.catalog.warehouse": lake.warehouse or "",
        "iceberg.catalog.jdbc.schema-version": "V1",
    }


@contextmanager
def _connect(folder: Path, sink: dict[str, str], connections: Connections) -> Iterator[processes.Running]:
    """Connect in a process of its own, with one sink."""
    java = find_java(print)
    jars = fetch(LIBRARIES, java, print)
    folder.mkdir()
    bootstrap, control = connections.get("kafka", KafkaConnection).bootstrap_servers, sink["iceberg.control.topic"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(control, 1)])[control].result(timeout=30)
    for name, settings in (("worker", _worker(bootstrap, folder)), ("sink", sink)):
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (folder / f"{name}.properties").write_text(text)
    argv = [*jvm(java, folder, "2g", classpath(jars)), "org.apache.kafka.connect.cli.ConnectStandalone"]
    files = [str(folder / f"{name}.properties") for name in ("worker", "sink")]
    running = processes.start(Command([*argv, *files]), folder / "log", folder)
    try:
        yield running
    finally:
        processes.stop(running)


@dataclass(frozen=True)
class SinkRun:
    """One log into one table.

    Attributes:
        steady: records a second over its whole commit intervals, without the first and the last commit; empty where
            there were too few.
        whole: from the start of Connect's process until every row is visible.
    """

    steady: tuple[float, ...]
    whole: Spent


@contextmanager
def sink(home: Path, connections: Connections, topic: str, commit_ms: int) -> Iterator[Sink]:
    """The sink, from the beginning of this log into a new table."""
    table = SinkTable.make(connections)
    lake = connections.get("lake", IcebergConnection)
    settings = _connector(topic, f"control-{table.name}", table.full_name, commit_ms, lake)
    with _connect(home / table.name, settings, connections) as running:
        yield Sink(running, home / table.name / "log", table)


def run_sink(home: Path, connections: Connections, topic: str, rows: int, commit_ms: int) -> SinkRun:
    began = time.monotonic()
    with sink(home, connections, topic, commit_ms) as one, spent(psutil.Process(one.process.pid)) as whole:
        while (found := one.rows()) < rows:
            if time.monotonic() - began > _PATIENCE:
                raise SystemExit(f"the sink has {found:,} of {rows:,} rows:\n{one.log.read_text()[-3000:]}")
            time.sleep(0.2)
    return SinkRun(_steady(one.table.loaded), whole)


def _steady(table: Table) -> tuple[float, ...]:
    commits = [(s.timestamp_ms / 1000, rows_in(s)) for s in table.metadata.snapshots]
    if len(commits) < 4:
        return ()
    (first, before), (last, after) = commits[0], commits[-2]
    return ((after - before) / (last - first),)
