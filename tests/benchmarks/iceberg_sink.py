"""Append into Iceberg beside the Apache Iceberg Kafka Connect sink: the same log, broker, catalog and table, one after
the other in one run.

To reach, by the issue: at least as fast as that sink. Ours is timed from the plan to the published table, with the warm
Spark that a schedule meets. The sink is timed twice: from the start of its process until every row is visible, and
steady, over its whole commit intervals alone (a commit every two seconds), without start, first and last commit.
`--rows` sets the size of the log.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.table import Table

from jobs.iceberg.schema import iceberg_schema
from jobs.schema.types import parse_columns
from resources.connections import Connections, IcebergConnection, KafkaConnection
from resources.iceberg import IcebergCatalog
from resources.local import processes
from resources.local.jars import Bundle, classpath, fetch
from resources.local.java import find_java
from resources.local.jvm import jvm
from resources.local.ports import free_port
from resources.local.service import HOST, Command
from tests.benchmarks._records import COLUMNS
from tests.benchmarks._workload import fill, services
from tests.benchmarks.iceberg import advance, pipeline, report

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
TABLE = "bench.sink"
PATIENCE = 400


def worker(bootstrap: str, folder: Path) -> dict[str, str]:
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


def connector(topic: str, control: str, lake: IcebergConnection) -> dict[str, str]:
    return {
        "name": "sink",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "2",
        "topics": topic,
        "iceberg.tables": TABLE,
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": "2000",
        "iceberg.catalog": "lake",
        "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "iceberg.catalog.uri": "jdbc:" + (lake.uri or "").replace("sqlite:///", "sqlite:"),
        "iceberg.catalog.warehouse": lake.warehouse or "",
        "iceberg.catalog.jdbc.schema-version": "V1",
    }


@contextmanager
def running_sink(folder: Path, topic: str, connections: Connections) -> Iterator[processes.Running]:
    """Connect in a process of its own, with one sink."""
    java = find_java(print)
    jars = fetch(LIBRARIES, java, print)
    folder.mkdir()
    bootstrap = connections.get("kafka", KafkaConnection).bootstrap_servers
    control = f"{topic}-control"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(control, 1)])[control].result(timeout=30)
    files = {
        "worker.properties": worker(bootstrap, folder),
        "sink.properties": connector(topic, control, connections.get("lake", IcebergConnection)),
    }
    for name, settings in files.items():
        (folder / name).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    argv = [*jvm(java, folder, "2g", classpath(jars)), "org.apache.kafka.connect.cli.ConnectStandalone"]
    running = processes.start(Command([*argv, *(str(folder / name) for name in files)]), folder / "log", folder)
    try:
        yield running
    finally:
        processes.stop(running)


def sink(home: Path, connections: Connections, topic: str, rows: int) -> None:
    catalog = IcebergCatalog("lake", connections.get("lake", IcebergConnection))
    schema = pa.schema([field.with_nullable(True) for field in parse_columns(COLUMNS)])
    catalog.create(TABLE, iceberg_schema(schema), properties={"write.parquet.compression-codec": "zstd"})
    began, folder = time.time(), home / "sink"
    with running_sink(folder, topic, connections) as running:
        while visible(table := catalog.require(TABLE)) < rows:
            if not processes.is_alive(running) or time.time() - began > PATIENCE:
                log = (folder / "log").read_text()[-3000:]
                raise SystemExit(f"the sink has {visible(table):,} of {rows:,} rows:\n{log}")
            time.sleep(0.2)
    commits = [(s.timestamp_ms / 1000, _total(s.summary)) for s in table.metadata.snapshots]
    whole = commits[-1][0] - began
    print(f"sink, from the start of its process            {rows:>9,} records  {whole:6.2f} s  {rows / whole:>9,.0f}/s")
    if len(commits) > 3:
        (first, before), (last, after) = commits[0], commits[-2]
        rate = (after - before) / (last - first)
        print(f"sink, steady, over {len(commits) - 2} commits {'':24s} {rate:>28,.0f}/s", flush=True)


def visible(table: Table) -> int:
    found = table.current_snapshot()
    return _total(found.summary) if found else 0


def _total(summary: object) -> int:
    return int(getattr(summary, "additional_properties", {}).get("total-records", 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    wanted = parser.parse_args()
    fetch(LIBRARIES, find_java(print), print)
    with services("kafka", "spark") as (home, connections):
        topic = "beside-the-sink"
        fill(connections, topic, iter(range(wanted.rows)))
        fill(connections, "warm", iter(range(50_000)))
        for direct in (False, True):
            advance(pipeline(connections, "warm", "append", 50_000, direct))
        for direct in (True, False):
            label = "ours, direct" if direct else "ours, through the intermediate table"
            runs = [advance(pipeline(connections, topic, "append", wanted.rows, direct)) for _ in range(2)]
            report(label, runs)
        sink(home, connections, topic, wanted.rows)


if __name__ == "__main__":
    main()
