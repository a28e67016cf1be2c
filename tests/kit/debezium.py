"""Debezium's PostgreSQL connector on Kafka Connect standalone, both from Maven."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resources.local.jars import Bundle, classpath, fetch
from resources.local.java import find_java
from resources.local.jvm import jvm
from resources.local.ports import free_port
from tests.kit.postgres import HOST, Postgres
from tests.kit.processes import stop

CAPTURE = Bundle(
    "debezium-postgres",
    (
        ("org.apache.kafka", "connect-runtime", "4.1.1"),
        ("org.apache.kafka", "connect-json", "4.1.1"),
        ("org.apache.kafka", "connect-transforms", "4.1.1"),
        ("io.debezium", "debezium-connector-postgres", "3.7.0.Final"),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
    ),
)
# Writes Avro in Confluent's wire format; Confluent's own converter is in no public Maven repository.
AVRO = Bundle(
    "apicurio-converter",
    (("io.apicurio", "apicurio-registry-utils-converter", "2.6.13.Final"),),
    without=(("org.apache.kafka", ".*"),),
)
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def _converter(registry: str | None) -> dict[str, str]:
    """The worker's settings of keys and values."""
    settings = {"converter": _JSON}
    if registry:
        settings = {
            "converter": "io.apicurio.registry.utils.converter.AvroConverter",
            "converter.schemas.enable": "false",
            "converter.apicurio.registry.url": registry.replace("/ccompat/v7", "/registry/v2"),
            "converter.apicurio.registry.auto-register": "true",
            "converter.apicurio.registry.headers.enabled": "false",
            "converter.apicurio.registry.as-confluent": "true",
            "converter.apicurio.registry.use-id": "contentId",
        }
    return {f"{part}.{name}": value for part in ("key", "value") for name, value in settings.items()}


@contextmanager
def capturing(
    folder: Path, kafka: str, postgres: Postgres, prefix: str, registry: str | None = None, **settings: str
) -> Iterator[None]:
    """Captures the tables of schema `public` into topics `<prefix>.public.<table>` until the end of the block.

    Args:
        registry: the address of a registry's Confluent-compatible API: records are Avro with schemas of it, not JSON.
        settings: further settings of the connector, `_` for `.` in their names.
    """
    java = find_java(print)
    jars = [fetch(bundle, java, print) for bundle in ([CAPTURE, AVRO] if registry else [CAPTURE])]
    worker = {
        "bootstrap.servers": kafka,
        **_converter(registry),
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "1000",
        "listeners": f"http://{HOST}:{free_port(())}",
        "plugin.discovery": "service_load",
        "plugin.path": ",".join(map(str, jars)),
    }
    connector = {
        "name": "capture",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": HOST,
        "database.port": str(postgres.port),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": "postgres",
        "topic.prefix": prefix,
        "schema.include.list": "public",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "3",
        "slot.name": prefix.replace("-", "_"),
        "poll.interval.ms": "100",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    files = []
    for name, content in (("worker", worker), ("connector", connector)):
        file = folder / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in content.items()))
        files.append(str(file))
    run = jvm(java, folder, "384m", classpath(*jars))
    with (folder / "connect.log").open("w") as log:
        process = subprocess.Popen(
            [*run, "org.apache.kafka.connect.cli.ConnectStandalone", *files], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield
        assert process.poll() is None, "Kafka Connect has stopped; see connect.log"
    finally:
        stop(process)
