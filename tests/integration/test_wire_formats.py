"""Records that name schemas in headers, or as AWS Glue's do, from a real broker into a table: landed, dead letters,
tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from jobs.dead_letters.listing import list_dead_letters
from jobs.dead_letters.retry import retry
from jobs.schema.protobuf import Messages, compiled, message_class
from orchestration.cli import infer as infer_command
from resources.connections import Connections, GlueSchemaRegistryConnection, SchemaRegistryConnection
from tests.kit.avro import encoded, record, text
from tests.kit.confluent import Headers, registry_client, serialized
from tests.kit.dead_letters import WHERE, read_all
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.glue_registry import framed, glue_service
from tests.kit.guid_registry import GuidRegistry, guid_registry
from tests.kit.network import with_connection
from tests.kit.records import bootstrap
from tests.kit.waiting import PATIENCE

COLUMNS = {"id": "long not null", "name": "string"}
KEY = record(("id", "long"), name="Key")
AVRO = record(("id", "long"), ("name", ["null", "string"]), name="Row")
JSON_SCHEMA = {
    "title": "Row",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}},
}
PROTO = """syntax = "proto3"; package shop;
message Unused { int64 id = 1; }
message Row { int64 id = 1; optional string name = 2; }"""
Written = tuple[bytes, Headers]


@pytest.fixture
def registry(connections: Connections) -> Iterator[tuple[Connections, str, type[GuidRegistry]]]:
    with guid_registry() as (url, kept):
        known = SchemaRegistryConnection(kind="schema_registry", url=url)
        yield with_connection(connections, "registry", known), url, kept


def rows(engine: Engine) -> list[tuple[int, str]]:
    """Those of its only table."""
    table = catalog(engine.connections).require(engine.flow.table(engine.flow.modes[0]))
    return sorted((row["id"], row["name"]) for row in table.scan().to_arrow().to_pylist())


def send(connections: Connections, topic: str, *records: tuple[Written | None, Written | None]) -> None:
    """Records of keys and values with their headers."""
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    for key, value in records:
        headers: Any = [("trace", b"t"), *(key[1] if key else []), *(value[1] if value else [])]
        producer.produce(topic, key=key and key[0], value=value and value[0], headers=headers)
    assert producer.flush(PATIENCE) == 0


def test_every_format_with_the_id_in_the_record_and_in_a_header(
    spark: SparkSession, topic: Callable[..., str], registry: tuple[Connections, str, type[GuidRegistry]]
) -> None:
    connections, url, kept = registry
    client, names = registry_client(url), {format: topic(format) for format in ("avro", "json", "protobuf")}
    kept.register(f"{names['protobuf']}-value", PROTO, "PROTOBUF")
    row = message_class(Messages(compiled((PROTO,), ("",))).named("shop.Row"))
    source = {
        "topics": [*names.values()],
        "value": {"format": "json", "columns": COLUMNS},
        "per_topic": {name: {"value": {"format": format, "registry": "registry"}} for format, name in names.items()},
    }
    flow = Flow(names["avro"], ["append"], overrides={"source": source, "changes": {}})
    engine, number, wanted = Engine(flow, connections, spark), 0, list[tuple[int, str]]()
    for _ in range(2):  # the second batch knows the ids of the first
        for format, name in names.items():
            for in_header in (True, False):
                number += 1
                value: Any = {"id": number, "name": format}
                schema = {"avro": AVRO, "json": JSON_SCHEMA, "protobuf": None}[format]
                value = row(**value) if schema is None else value
                send(connections, name, (None, serialized(client, schema, value, name, in_header=in_header)))
                wanted.append((number, format))
        (landed,) = engine.advance()
        assert (landed.counts.landed, landed.counts.quarantined) == (6, 0)
        assert rows(engine) == wanted
    guids = [path for path in kept.asked if path.startswith("schemas/guids/")]
    assert len(set(guids)) == 3


def test_unknown_guids_are_dead_letters_until_they_are_known(
    spark: SparkSession, topic: Callable[..., str], registry: tuple[Connections, str, type[GuidRegistry]]
) -> None:
    """With the schema of the key in a header, too; then tried again, and in the dead-letter topic with their header."""
    connections, url, kept = registry
    client, name = registry_client(url), topic("keyed")
    encoding = {"format": "avro", "registry": "registry"}
    source = {"topics": [name], "key": {**encoding, "columns": {"id": "long not null"}},
              "value": {**encoding, "columns": COLUMNS}}  # fmt: skip
    changes = {"key": {"columns": ["id"]}}
    queue = topic("dead")
    overrides = {"source": source, "changes": changes, "dead_letters": {"topic": queue}}
    engine = Engine(Flow(name, ["upsert_delete"], overrides=overrides), connections, spark)

    def key(number: int) -> Written:
        return serialized(client, KEY, {"id": number}, name, "key")

    def value(number: int, schema: dict[str, Any] = AVRO) -> Written:
        return serialized(client, schema, {"id": number, "name": f"n{number}"}, name)

    other = record(("id", "long"), ("name", "string"), name="Other")
    lost = value(3, other)
    kept.hidden.update(
        kept.version(place)["guid"] for place, (_, one) in enumerate(kept.schemas) if "Other" in str(one)
    )
    send(connections, name, (key(1), value(1)), (key(2), value(2)), (key(3), lost), (key(2), None))
    (landed,) = engine.advance()
    assert (landed.counts.landed, landed.counts.quarantined) == (3, 1)
    assert rows(engine) == [(1, "n1")]
    (dead_letter,) = list_dead_letters(engine.pipeline, 9)
    assert dead_letter.message == f"schema GUID {next(iter(kept.hidden))} is not in the registry"
    (sent,) = read_all(connections, queue, 1)
    headers = dict(sent.headers() or [])
    assert headers["__value_schema_id"] == lost[1][0][1]
    assert (sent.value(), "trace" in headers) == (lost[0], False)

    kept.hidden.clear()
    retry(engine.pipeline)
    assert rows(engine) == [(1, "n1"), (3, "n3")]


def test_a_transform_reads_them_and_keeps_headers_of_dead_letters(
    spark: SparkSession, topic: Callable[..., str], registry: tuple[Connections, str, type[GuidRegistry]]
) -> None:
    connections, url, _ = registry
    client, name = registry_client(url), topic("transformed")
    source = {
        "topics": [name],
        "value": {"format": "avro", "registry": "registry", "columns": COLUMNS},
        "transform": "select id, upper(name) as name from records",
    }
    engine = Engine(Flow(name, ["append"], overrides={"source": source, "changes": {}}), connections, spark)
    data, headers = serialized(client, AVRO, {"id": 1, "name": "a"}, name)
    send(connections, name, (None, (data, headers)), (None, (data + b"more", headers)))
    (landed,) = engine.advance()
    assert (landed.counts.landed, landed.counts.quarantined) == (1, 1)
    assert rows(engine) == [(1, "A")]
    table = spark.table(".".join(engine.pipeline.intermediate.path)).where("error is not null")
    (row,) = table.select("error.value", "error.headers").collect()
    assert (bytes(row["value"]), row["headers"][0]["key"]) == (data + b"more", "__value_schema_id")


def test_columns_and_proposals_come_from_the_schemas_of_headers(
    spark: SparkSession,
    topic: Callable[..., str],
    registry: tuple[Connections, str, type[GuidRegistry]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections, url, _ = registry
    client, name = registry_client(url), topic("open")
    both = [serialized(client, AVRO, {"id": n, "name": "a"}, name) for n in (1, 2)]
    send(connections, name, *((None, one) for one in both))
    monkeypatch.setattr(infer_command, "load_connections", lambda: connections)
    done = CliRunner().invoke(infer_command.infer, [name, "--registry", "registry"])
    assert done.exit_code == 0, done.output
    value = {"format": "avro", "registry": "registry", "columns": {"id": "long not null", "name": "string"}}
    assert yaml.safe_load(done.output)["source"]["value"] == value
    source = {"topics": [name], "value": {"format": "avro", "registry": "registry"}}
    engine = Engine(Flow(name, ["append"], overrides={"source": source, "changes": {}}), connections, spark)
    (landed,) = engine.advance()
    assert landed.counts.landed == 2
    assert engine.pipeline.spec.source.value.columns == {"id": "long", "name": "text"}


def test_records_of_aws_glue(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> None:
    """Compressed or not. Dead letters have the record as it was, and are tried again when the version is known."""
    name, other = topic("glue"), record(("id", "long"), ("name", "string"), name="Other")
    source = {"topics": [name], "value": {"format": "avro", "registry": "glue", "columns": COLUMNS}}
    parts: dict[str, object] = {"source": source, "changes": {}}
    with glue_service() as (url, kept):
        glue = GlueSchemaRegistryConnection.model_validate(
            {"kind": "glue_schema_registry", "region": "eu-west-1", "endpoint_url": url,
             "access_key_id": "AKIAEXAMPLE", "secret_access_key": "hunter2"}
        )  # fmt: skip
        known = with_connection(connections, "glue", glue)
        engine = Engine(Flow(name, ["append"], overrides=parts, table_options=WHERE), known, spark)
        version, unknown = kept.register(text(AVRO), "AVRO"), kept.register(text(other), "AVRO")
        hidden = kept.versions.pop(unknown)
        data = [encoded(AVRO, {"id": n, "name": f"n{n}"}) for n in (1, 2)]
        lost = framed(unknown, encoded(other, {"id": 3, "name": "n3"}), compressed=True)
        values = [framed(version, data[0]), framed(version, data[1], compressed=True), lost]
        send(connections, name, *((None, (value, [])) for value in values))
        (landed,) = engine.advance()
        assert (landed.counts.landed, landed.counts.quarantined) == (2, 1)
        assert rows(engine) == [(1, "n1"), (2, "n2")]
        (dead_letter,) = list_dead_letters(engine.pipeline, 9, values=True)
        assert dead_letter.message == f"schema GUID {unknown} is not in the registry"
        assert dead_letter.value == lost
        kept.versions[unknown] = hidden
        retry(engine.pipeline)
        assert rows(engine) == [(1, "n1"), (2, "n2"), (3, "n3")]
