"""Apache Flink with its Iceberg sink: one log into one table, in a process of its own that has all of Flink in it.

Flink's own libraries come out of its package at PyPI, which has them all; the connectors come from Maven.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from py4j.java_gateway import GatewayParameters, JavaGateway

from resources.connections import Connections, IcebergConnection, KafkaConnection
from resources.local import processes
from resources.local.jars import Bundle, classpath, fetch, pyspark_folder
from resources.local.java import find_java
from resources.local.jvm import jvm
from resources.local.ports import accepts, free_port
from resources.local.service import Command, cache_folder
from tests.benchmarks._records import COLUMNS
from tests.benchmarks._sink import Sink, SinkTable
from tests.kit.waiting import until

VERSION, _ICEBERG, _HADOOP = "2.0.1", "1.10.1", "3.4.1"
_CONNECTORS = Bundle(
    "flink-sink",
    (
        ("org.apache.flink", "flink-sql-connector-kafka", "4.0.1-2.0"),
        ("org.apache.iceberg", "iceberg-flink-runtime-2.0", _ICEBERG),
        ("org.apache.hadoop", "hadoop-client-api", _HADOOP),
        ("org.apache.hadoop", "hadoop-client-runtime", _HADOOP),
        ("org.xerial", "sqlite-jdbc", "3.46.1.0"),
    ),
    without=((r"org\.slf4j", ".*"),),
)
# What its own start script opens to it.
_OPENED = ("lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent")
_SQL = """\
CREATE CATALOG lake WITH (
  'type' = 'iceberg', 'catalog-impl' = 'org.apache.iceberg.jdbc.JdbcCatalog', 'jdbc.schema-version' = 'V1',
  'uri' = '{uri}', 'warehouse' = '{warehouse}');
CREATE TABLE log ({columns}) WITH (
  'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{bootstrap}',
  'properties.group.id' = 'flink-{table}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
INSERT INTO lake.bench.{table} SELECT * FROM log"""
_TYPES = {"long": "BIGINT", "double": "DOUBLE", "string": "STRING"}


@contextmanager
def flink(home: Path, connections: Connections, topic: str, commit_ms: int) -> Iterator[Sink]:
    """The job, from the beginning of this log into a new table; a checkpoint is a commit."""
    table, java = SinkTable.make(connections), find_java(print)
    libraries, connectors = _libraries(), fetch(_CONNECTORS, java, print)
    folder = home / table.name
    folder.mkdir()
    lake = connections.get("lake", IcebergConnection)
    statements = _SQL.format(
        uri="jdbc:" + (lake.uri or "").replace("sqlite:///", "sqlite:"),
        warehouse=lake.warehouse,
        columns=", ".join(f"`{name}` {_TYPES[kind]}" for name, kind in COLUMNS.items()),
        topic=topic,
        bootstrap=connections.get("kafka", KafkaConnection).bootstrap_servers,
        table=table.name,
    )
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    (py4j,), port = (pyspark_folder() / "jars").glob("py4j-*.jar"), free_port(())
    path = f"{classpath(libraries, connectors)}{os.pathsep}{py4j}"
    argv = [*jvm(java, folder, "2g", path, opened), "py4j.GatewayServer", str(port)]
    running = processes.start(Command(argv), folder / "log", folder)
    try:
        until(lambda: accepts(port), folder / "log")
        _execute(port, statements, commit_ms)
        yield Sink(running, folder / "log", table)
    finally:
        processes.stop(running)


def _execute(port: int, statements: str, commit_ms: int) -> None:
    """Runs them in that process; the last one goes on there."""
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    api = gateway.jvm.org.apache.flink.table.api
    environment = api.TableEnvironment.create(api.EnvironmentSettings.newInstance().inStreamingMode().build())
    environment.getConfig().set("execution.checkpointing.interval", f"{commit_ms} ms")
    for statement in statements.split(";\n"):
        environment.executeSql(statement)
    gateway.close()


def _libraries() -> Path:
    """Flink's own, in a folder of the cache; taken out of its package where they are not there yet."""
    folder = cache_folder() / "jars" / f"flink-{VERSION}"
    if folder.is_dir():
        return folder
    print(f"flink: downloading apache-flink-libraries {VERSION}, 300 MB (once)")
    with TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", place]
        subprocess.run([*command, f"apache-flink-libraries=={VERSION}"], check=True)
        (package,) = Path(place).glob("*.tar.gz")
        partial = folder.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        with tarfile.open(package) as archive:
            for member in archive:
                path = Path(member.name)
                if path.parent.name == "lib" and (source := archive.extractfile(member)):
                    (partial / path.name).write_bytes(source.read())
        partial.replace(folder)
    return folder
