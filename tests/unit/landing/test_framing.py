"""Schema ids in headers, as Confluent's own serializers write them, beside those in the records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from jobs.changes.columns import SOME_HEADERS, landing_schema
from jobs.decode.avro import RegisteredAvro
from jobs.decode.of_schema import SchemaDecoder
from jobs.decode.parts import SMALL
from jobs.decode.protobuf import RegisteredProtobuf
from jobs.infer.propose import propose, sampled
from jobs.landing.framing import Framing, wanted_headers
from jobs.landing.readers import record_reader
from jobs.landing.registry_schemas import Registries, SchemaIds, Schemas
from jobs.landing.task_report import TaskReport
from jobs.landing.transform import DecodeStep
from jobs.schema.protobuf import Messages, compiled, message_class
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.source import Source
from resources.connections import GlueSchemaRegistryConnection, SchemaRegistryConnection
from resources.errors import ConfigurationError
from resources.kafka_records import HEADERS
from resources.registries import open_registry
from resources.schema_registry import SchemaRegistry
from tests.kit import specs
from tests.kit.arrow import copied, kafka_records
from tests.kit.avro import encoded
from tests.kit.batches import batch
from tests.kit.confluent import Headers, registry_client, serialized
from tests.kit.glue_registry import framed, glue_service
from tests.kit.guid_registry import GuidRegistry, guid_of, guid_registry
from tests.kit.in_step import assert_same

AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
JSON_SCHEMA = {
    "title": "Row",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}},
}
PROTO = """syntax = "proto3"; package shop;
message First { int64 id = 1; message Row { int64 id = 1; optional string name = 2; } }
message Other { optional string name = 2; int64 id = 1; }"""
DESCRIPTORS = compiled((PROTO,), ("",))
COLUMNS = {"id": "long not null", "name": "string"}
ROWS: list[dict[str, Any]] = [{"id": 1, "name": "a"}, {"id": 2**40, "name": None}, {"id": -3, "name": "é" * 40}]


@dataclass
class Producer:
    """Writes records with Confluent's serializers."""

    url: str
    registry: type[GuidRegistry]

    def __post_init__(self) -> None:
        self.client = registry_client(self.url)
        for part in ("key", "value"):
            self.registry.register(f"t-{part}", PROTO, "PROTOBUF")

    def write(
        self, format: str, row: dict[str, Any], part: str = "value", in_header: bool = True, message: str = "First.Row"
    ) -> tuple[bytes, Headers]:
        schema: Any = {"avro": AVRO, "json": JSON_SCHEMA, "protobuf": None}[format]
        value: Any = row
        if schema is None:
            made = message_class(Messages(DESCRIPTORS).named(f"shop.{message}"))
            value = made(**{name: one for name, one in row.items() if one is not None})
        return serialized(self.client, schema, value, part=part, in_header=in_header)

    @property
    def ours(self) -> Registries:
        connection = SchemaRegistryConnection(kind="schema_registry", url=self.url)
        return Registries({"reg": SchemaRegistry("reg", connection)})


@pytest.fixture
def producer() -> Iterator[Producer]:
    with guid_registry() as (url, registry):
        yield Producer(url, registry)


def source_of(format: str, **more: object) -> Source:
    encoding = {"format": format, "registry": "reg", "columns": COLUMNS}
    return Source.model_validate({"topics": ["t"], "key": encoding, "value": encoding, **more})


def records(*written: tuple[bytes | None, Headers | None], part: str = "value", topic: str = "t") -> pa.RecordBatch:
    """Records of these keys or values."""
    pairs = [(None, data) if part == "value" else (data, None) for data, _ in written]
    made = kafka_records(*pairs, places=[(topic, 0, n) for n in range(len(pairs))])
    headers = [[{"key": k, "value": v} for k, v in own] if own else None for _, own in written]
    return made.append_column("some_headers", pa.array(headers, HEADERS))


def as_read(batch_: pa.RecordBatch, source: Source, part: str = "value") -> pa.Array:
    headers = Framing.of(source, part)
    assert headers is not None
    return copied(headers).records(batch_, part)


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("format", ["avro", "json", "protobuf"])
def test_a_batch_of_both_framings(producer: Producer, format: str, part: str) -> None:
    """Many of each, so that they are read together, and one of each, which are read alone."""
    both = [producer.write(format, row, part, in_header) for row in ROWS for in_header in (True, False)]
    source = source_of(format)
    where = SchemaIds.of(source)
    assert where is not None
    for times in (SMALL + 1, 1):
        read = records(*both * times, part=part)
        ids = copied(where)(read)["reg"]
        assert {type(one) for one in ids} == {int, str}
        schemas = {"reg": producer.ours.of_ids("reg", ids)}
        assert schemas["reg"].keys() == ids
        made = PipelineSpec.model_validate(
            {"source": source.model_dump(exclude_unset=True), "changes": {"key": {"columns": ["id"]}},
             "tables": [specs.table(mode="upsert")]} if part == "key" else
            {"source": source.model_dump(exclude_unset=True), "tables": [specs.table()]}
        )  # fmt: skip
        reader = copied(record_reader(made, batch(1), landing_schema(made), schemas))
        ((landed, report),) = reader.with_reports([read])
        assert landed.column("error").null_count == len(read)
        wanted = [row for row in ROWS for _ in range(2)] * times
        if part == "key":
            assert landed.column("key").to_pylist() == [{"id": row["id"]} for row in wanted]
        else:
            assert landed.column("value").to_pylist() == wanted
        assert report.schema_ids == {"reg": ids}


@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_many_at_once_are_read_as_one_by_one(producer: Producer, format: str) -> None:
    messages = ["First.Row", "Other", "First"] if format == "protobuf" else [""]
    rows = [{**row, "name": None} if message == "First" else row for message in messages for row in ROWS[:2]]
    written = [
        producer.write(format, {k: v for k, v in row.items() if message != "First" or k == "id"}, message=message)
        for message, row in zip([m for m in messages for _ in range(2)], rows, strict=True)
    ]
    raws = as_read(records(*written), source_of(format)).to_pylist()
    ids = producer.ours.of_ids("reg", SchemaIds.of(source_of(format))(records(*written))["reg"])  # type: ignore[misc]
    kind = source_of(format).value.struct
    decoder: SchemaDecoder = RegisteredAvro(kind, ids, None) if format == "avro" else RegisteredProtobuf(kind, ids)
    assert assert_same(copied(decoder), [*raws, raws[0][:9], raws[0][:17], None], times=SMALL + 1) > len(raws)
    assert decoder.decode(pa.array(raws)).values.to_pylist() == rows


def test_unknown_guid_is_a_dead_letter_with_record_and_header(producer: Producer) -> None:
    data, headers = producer.write("avro", ROWS[0])
    other = (data, [("__value_schema_id", headers[0][1][:-1] + b"\0")])
    made = specs.spec(value={"format": "avro", "registry": "reg"}, columns=COLUMNS)
    assert wanted_headers(made.source) == {"__value_schema_id"}
    batch_ = records((data, headers), other, (data, None))
    schemas = {"reg": producer.ours.of_ids("reg", SchemaIds.of(made.source)(batch_)["reg"])}  # type: ignore[misc]
    rows = record_reader(made, batch(1), landing_schema(made), schemas).read(batch_).to_pylist()
    assert rows[0]["value"] == ROWS[0]
    guid = guid_of({"schema": json.dumps(AVRO)})[:-2] + "00"
    assert (rows[1]["error"]["kind"], rows[1]["error"]["message"]) == (
        "schema", f"schema GUID {guid} is not in the registry"
    )  # fmt: skip
    assert rows[1]["error"]["value"] == data
    assert [one["key"] for one in rows[1]["error"]["headers"]] == ["__value_schema_id", SOME_HEADERS]
    assert rows[2]["error"]["kind"] == "undecodable"
    assert rows[2]["error"]["message"].startswith("the record names no schema")


def test_a_transform_keeps_the_header_for_dead_letters(producer: Producer) -> None:
    value = {"format": "avro", "registry": "reg"}
    made = specs.spec(value=value, columns=COLUMNS, source={"transform": "select * from records"})
    batch_ = records(producer.write("avro", ROWS[0]), (b"\x02", producer.write("avro", ROWS[0])[1]))
    schemas = {"reg": producer.ours.of_ids("reg", SchemaIds.of(made.source)(batch_)["reg"])}  # type: ignore[misc]
    reader = record_reader(made, batch(1), landing_schema(made), schemas)
    step = DecodeStep(reader.key_decoder, reader.value_decoder, headers="some_headers")
    (decoded,) = copied(step)([batch_])
    assert decoded.schema == step.schema
    assert decoded.column("row").to_pylist() == [ROWS[0], None]
    result = pc.struct_field(decoded.column("row"), "id"), pc.struct_field(decoded.column("row"), "name")
    evaluated = pa.StructArray.from_arrays(result, names=["id", "name"], mask=decoded.column("row").is_null())
    landed = reader.read(decoded.append_column("result", evaluated)).to_pylist()
    assert landed[1]["error"]["headers"][0]["key"] == "__value_schema_id"


ID = b"\0\0\0\0\5"
GUID = b"\1" + bytes(range(16))


@pytest.mark.parametrize(
    ("format", "headers", "wanted"),
    [
        pytest.param("avro", [GUID], GUID + b"x", id="GUID"),
        pytest.param("avro", [ID], ID + b"x", id="an id may be there too"),
        pytest.param("avro", [GUID + b"more"], GUID + b"x", id="more than the GUID is left out"),
        pytest.param("protobuf", [GUID + b"\2\4more"], GUID + b"\2\4x", id="more than the indexes is left out"),
        pytest.param("avro", [ID, GUID], GUID + b"x", id="the last one, as in Kafka Connect"),
        pytest.param("avro", [GUID, None], b"x", id="without a value it says nothing"),
        pytest.param("avro", [], b"x", id="no header"),
        pytest.param("avro", [b""], b"\xffx", id="empty"),
        pytest.param("avro", [GUID[:-1]], b"\xffx", id="cut off"),
        pytest.param("avro", [b"\2" + GUID], b"\xffx", id="another first byte"),
        pytest.param("protobuf", [GUID], b"\xffx", id="without message indexes"),
    ],
)
def test_what_headers_say(format: str, headers: list[bytes | None], wanted: bytes) -> None:
    own = cast(Headers, [("trace", b"t"), *(("__value_schema_id", one) for one in headers), ("__key_schema_id", ID)])
    read = records((b"x", own), (None, own), (b"y", None))
    assert as_read(read, source_of(format)).to_pylist() == [wanted, None, b"y"]


def test_records_of_no_registry_are_left_as_they_are() -> None:
    per_topic = {"plain": {"value": {"format": "json"}}, "proto": {"value": {"format": "protobuf", "registry": "reg"}}}
    source = source_of("avro", topics=["t", "plain", "proto"], per_topic=per_topic)
    both: Headers = [("__value_schema_id", GUID + b"\0"), ("__key_schema_id", GUID)]
    read = pa.Table.from_batches([records((b"x", both), topic=topic) for topic in ("plain", "t", "proto")])
    (joined,) = read.combine_chunks().to_batches()
    assert as_read(joined, source).to_pylist() == [b"x", GUID + b"x", GUID + b"\0x"]
    where = SchemaIds.of(source)
    assert where is not None
    assert where(joined) == {"reg": {"00010203-0405-0607-0809-0a0b0c0d0e0f"}}


def test_no_header_costs_nothing() -> None:
    """Keys and values stay the arrays that they are."""
    read = records((b"x", None), (b"y", [("trace", b"t")]))
    for given in (read, read.drop_columns(["some_headers"])):
        bytes_of = [array.buffers()[2].address for array in (as_read(given, source_of("avro")), given.column("value"))]
        assert bytes_of[0] == bytes_of[1]
    assert wanted_headers(source_of("avro")) == {"__key_schema_id", "__value_schema_id"}
    assert wanted_headers(Source.model_validate({"topics": ["t"], "value": {"columns": COLUMNS}})) == frozenset()


def test_the_newest_schema_of_a_subject_is_known_by_its_guid_too(producer: Producer) -> None:
    producer.write("avro", ROWS[0])
    guid = guid_of({"schema": json.dumps(AVRO)})
    passes = list[Schemas]()

    def once(schemas: Schemas) -> list[TaskReport]:
        passes.append(schemas)
        return [TaskReport(schema_ids={"reg": frozenset({guid})})]

    source = specs.spec(value={"format": "avro", "registry": "reg"}, columns=COLUMNS).source
    (report,) = producer.ours.read(source, ["t"], {}, once)
    assert [guid in one["reg"] for one in passes] == [True]
    assert report.schema_ids == {"reg": {guid}}
    producer.ours.read(source, ["t"], report.schema_ids, once)
    assert [[*one["reg"]] for one in passes[1:]] == [[guid]]


@pytest.mark.parametrize("format", ["avro", "json", "protobuf"])
def test_infer_finds_the_schemas_of_headers(producer: Producer, format: str) -> None:
    read = pa.Table.from_batches([records(*(producer.write(format, row) for row in ROWS))])
    found, named = sampled(read, "value")
    registry = producer.ours.by_name["reg"]
    proposal = propose(found, registry, named)
    assert proposal is not None
    assert (proposal.document["format"], proposal.document["registry"]) == (format, "reg")
    assert proposal.document["columns"]["name"] == "string"
    assert proposal.trial.fitting == 3
    assert proposal.remarks[0].startswith("from schema GUID ")
    assert sampled(read, "key") == ([], False)


def test_bytes_that_look_like_a_guid_are_none_without_a_header() -> None:
    proposal = propose([GUID + b"\xff", GUID], None)
    assert proposal is not None
    assert proposal.document["format"] == "bytes"


def test_compressed_records_of_aws_glue_are_uncompressed_for_decoders_alone() -> None:
    compressed = framed(str(UUID(bytes=GUID[1:])), b"\x02", compressed=True)
    source = Source.model_validate(
        {
            "topics": ["t", "plain"],
            "value": {"format": "avro", "registry": "glue", "columns": {"id": "binary"}},
            "per_topic": {"plain": {"value": {"format": "bytes"}}},
        }
    )
    read = pa.Table.from_batches([records((compressed, None), topic=topic) for topic in ("t", "plain")])
    (joined,) = read.combine_chunks().to_batches()
    assert as_read(joined, source).to_pylist() == [b"\3\0" + GUID[1:] + b"\x02", compressed]
    where = SchemaIds.of(source)
    assert where is not None
    assert where(joined) == {"glue": {"00010203-0405-0607-0809-0a0b0c0d0e0f"}}


def test_infer_knows_records_of_aws_glue() -> None:
    with glue_service() as (url, kept):
        version = kept.register(json.dumps(AVRO), "AVRO")
        connection = {"kind": "glue_schema_registry", "region": "eu-west-1", "endpoint_url": url,
                      "access_key_id": "AKIAEXAMPLE", "secret_access_key": "hunter2"}  # fmt: skip
        registry = open_registry("glue", GlueSchemaRegistryConnection.model_validate(connection))
        rows = [framed(version, encoded(AVRO, row), row is ROWS[0]) for row in ROWS]
        found, named = sampled(pa.Table.from_batches([records(*((row, None) for row in rows))]), "value")
        proposal = propose(found, registry, named)
    assert proposal is not None
    assert proposal.document == {
        "format": "avro", "registry": "glue", "columns": {"id": "long not null", "name": "string"}
    }  # fmt: skip
    assert proposal.trial.fitting == 3
    with pytest.raises(ConfigurationError, match="a registry's wire format"):
        propose(found, None, named)
