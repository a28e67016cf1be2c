"""Columns proposed from samples, and from JSON Schemas."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
import yaml

from jobs.decode.json_strict import parse_json
from jobs.infer.propose import propose
from jobs.infer.value_types import infer_json
from jobs.schema.json_schema import json_schema_wire
from jobs.schema.types import type_name
from jobs.schema.wire import natural_type
from orchestration.cli import infer as infer_command
from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster
from resources.schema_registry import SchemaRegistry
from resources.stored_schema import StoredSchema

CONNECT = {"type": "struct", "fields": [{"field": "a", "type": "int32"}]}


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([1, None, -5], "long"),
        ([1, 2**63], "decimal(38,0)"),
        ([1, 0.5], "double"),
        ([True, None], "boolean"),
        (["2020-01-01", None], "date"),
        (["2020-01-01", "2020-02-30"], "string"),
        (["2020-01-01T00:00:00Z", "2020-01-01 10:00+01:00"], "timestamp"),
        (["2020-01-01T00:00:00.123"], "timestamp_ntz"),
        (["2020-01-01T00:00:00", "2020-01-01T00:00:00Z"], "string"),
        (["1234567890123456"], "string"),
        ([None], "string"),
        ([[1], [], [0.5]], "array<double>"),
        ([{"a": 1}, {"b": "x"}], "struct<a: long, b: string>"),
        ([{}], "map<string,string>"),
        ([1.5, "NaN", "-Infinity", 3], "double"),
        (["12.50", "-0.125"], "decimal(18,3)"),
        (["12.50", 7, 0.25], "decimal(18,2)"),
        (["1234567890123456.5"], "decimal(38,1)"),
        (["007", "12"], "string"),
        (["1.5", "a"], "string"),
        ([1763800000000, 1763800000001], "timestamp"),
        ([1763800000000, "2020-01-01T00:00:00Z"], "timestamp"),
        ([1763800000000, 17], "long"),
        ([1763800000], "long"),
        ([*range(396), "n/a"], "text"),
        ([{"a": 1}, {"a": 2}, "n/a"], "text"),
        ([True, True, 1], "text"),
        ([[1], [2], {}], "text"),
        ([[1], ["n/a"]], "array<text>"),
        ([{"a": 1}, {"a": {}}], "struct<a: text>"),
    ],
)
def test_types_of_values(values: list[Any], column: str) -> None:
    """The first in which all fit; a column is never left out."""
    proposal = propose([json.dumps({"c": value}).encode() for value in values], None)
    assert proposal is not None
    assert proposal.document["columns"] == {"c": column}
    assert (proposal.trial.records, proposal.trial.fitting) == (len(values), len(values))


def test_what_a_person_reads_who_approves() -> None:
    records: list[dict[str, Any]] = [{"a": 1, "n": None, "at": 1763800000000, "price": "1.25"} for _ in range(9)]
    texts = [json.dumps(record).encode() for record in [*records, {"a": "x"}, 5]]
    proposal = propose([*texts, b"{"], None)
    assert proposal is not None
    assert proposal.yaml("value").splitlines() == [
        "# 10 of 12 records fit; the others would be dead letters:",
        "# 1: the record: expected an object, found a number",
        "# 1: no JSON: expecting property name enclosed in double quotes at character 1",
        "# inferred from 10 records: check types, and add `not null` where a record without it is bad",
        "# a: 9 of 10 values are long (9 × number, 1 × string), so taken as text; if the others are mistakes, "
        "declare another type: they become dead letters",
        "# n: only nulls, taken as string",
        "# at: numbers that are milliseconds of 2000 to 2100, taken as timestamp; else write long",
        "# price: texts that are numbers, taken as decimal(18,2); else write string",
        "value:",
        "  format: json",
        "  columns:",
        "    a: text",
        "    n: string",
        "    at: timestamp",
        "    price: decimal(18,2)",
    ]


def test_units_that_no_type_reads_are_named() -> None:
    records = [{"created_at": 1763800000, "micros_ts": 1763800000000000, "count": 1763800000}]
    _, remarks = infer_json([parse_json(json.dumps(record).encode()) for record in records])
    assert [remark.split(";")[0] for remark in remarks] == [
        "created_at: maybe a time in seconds",
        "micros_ts: maybe a time in microseconds",
    ]


NUMERIC = {
    "type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "optional": True,
    "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}],
}  # fmt: skip


def test_numerics_without_precision_are_text_where_a_decimal_refuses_them() -> None:
    schema = {"type": "struct", "fields": [{**NUMERIC, "field": "wide"}, {**NUMERIC, "field": "small"}]}
    records = []
    for scale in (2, 12):
        payload = {"wide": {"scale": scale, "value": "BNI="}, "small": {"scale": 2, "value": "BNI="}}
        records.append(json.dumps({"schema": schema, "payload": payload}).encode())
    proposal = propose(records, None)
    assert proposal is not None
    assert proposal.document["columns"] == {"wide": "string", "small": "decimal(38,9)"}
    assert (proposal.trial.records, proposal.trial.fitting) == (2, 2)
    assert proposal.remarks[-1].startswith("wide: numbers without a fixed precision, taken as string")


def test_column_that_has_no_type_of_its_own_is_text() -> None:
    huge = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "60"}}  # fmt: skip
    schema = {"type": "struct", "fields": [{**huge, "field": "huge"}]}
    proposal = propose([json.dumps({"schema": schema, "payload": {"huge": "BNI="}}).encode()], None)
    assert proposal is not None
    assert (proposal.document["columns"], proposal.trial.fitting) == ({"huge": "text not null"}, 1)


@pytest.mark.parametrize(
    ("records", "format", "columns"),
    [
        ([b'{"a":1}', b"{"], "json", {"a": "long"}),
        ([b"hello", b"you"], "string", {"value": "string"}),
        ([b"\xff", b"\xfe"], "bytes", {"value": "binary"}),
        ([b"1", b"2"], "string", {"value": "string"}),
        ([(5).to_bytes(8), (1 << 20).to_bytes(8)], "bytes", {"value": "binary"}),
        ([(5).to_bytes(4), (70).to_bytes(4)], "bytes", {"value": "binary"}),
        ([b"one line\n\tand another"], "string", {"value": "string"}),
        ([json.dumps({"schema": CONNECT, "payload": {"a": 1}}).encode()], "connect_json", {"a": "int not null"}),
    ],
)
def test_format_of_records(records: list[bytes], format: str, columns: dict[str, str]) -> None:
    proposal = propose(records, None)
    assert proposal is not None
    assert proposal.document == {"format": format, "columns": columns}


@pytest.mark.parametrize(
    ("record", "document"),
    [
        ({"op": "c", "source": {}, "after": {"id": 1}}, {"envelope": "debezium", "columns": {"id": "long"}}),
        ({"op": "c", "source": {}, "after": "{}"}, {"envelope": "mongo", "columns": {"_id": "string"}}),
        (
            {"op": "c", "source": {}, "after": '{"_id":{"$oid":"6"},"n":5}'},
            {"envelope": "mongo", "columns": {"_id": "string", "n": "long"}},
        ),
        (
            {"op": "c", "source": {}, "after": '{"_id":{"$oid":"6"},"n":5,"at":{"$date":{}},"x":NaN}'},
            {"envelope": "mongo", "columns": {"_id": "string"}},
        ),
        (
            {"op": "c", "source": {}, "after": '{"_id":{"$oid":"6"},"n":[5,NaN]}'},
            {"envelope": "mongo", "columns": {"_id": "string", "n": "array<double>"}},
        ),
        ({"id": 1, "__deleted": "false"}, {"envelope": "debezium_flat", "columns": {"id": "long"}}),
        ({"data": {"id": 1}, "metadata": {"operation": "load"}}, {"envelope": "dms", "columns": {"id": "long"}}),
        (
            {"data": {"id": 1}, "metadata": {"a": 1}},
            {"columns": {"data": "struct<id: long>", "metadata": "struct<a: long>"}},
        ),
    ],
)
def test_envelopes_are_recognized(record: dict[str, Any], document: dict[str, Any]) -> None:
    proposal = propose([json.dumps(record).encode()], None)
    assert proposal is not None
    assert proposal.document == {"format": "json", **document}


def test_rows_of_envelopes_are_looked_at_before_and_after_the_change() -> None:
    deleted: dict[str, Any] = {"op": "d", "source": {}, "before": {"id": 1, "price": "1.50"}, "after": None}
    document = {"_id": {"$oid": "6"}, "at": {"$date": 1763800000000}, "n": {"$numberLong": "5"}}
    mongo = {"op": "c", "source": {}, "after": json.dumps(document)}
    columns = []
    for record in (deleted, mongo):
        proposal = propose([json.dumps(record).encode()], None)
        assert proposal is not None
        assert proposal.trial.fitting == 1
        columns.append(proposal.document["columns"])
    assert columns[0] == {"id": "long", "price": "decimal(18,2)"}
    assert columns[1]["n"] == "long"


def test_nothing_to_see_and_a_registry_that_is_not_named() -> None:
    assert propose([], None) is None
    with pytest.raises(ConfigurationError, match="--registry"):
        propose([b"\x00\x00\x00\x00\x01\x02"], None)


class Registry:
    """One schema of Protobuf, of id 1."""

    name = "r"
    text = 'syntax = "proto3"; message A { int64 id = 1; } message B { string name = 1; message C { bool on = 1; } }'

    def by_id(self, schema_id: int) -> StoredSchema | None:
        return StoredSchema(schema_id, "PROTOBUF", (self.text,), ("",)) if schema_id == 1 else None


REGISTRY = cast(SchemaRegistry, Registry())


def test_protobuf_is_of_the_message_that_most_records_are() -> None:
    records = [b"\0\0\0\0\1" + rest for rest in (b"\0\x08\1", *[b"\2\2\x0a\1x"] * 2)]
    truncated = b"\0\0\0\0\1"
    for given, columns in (
        (records, {"name": "string not null"}),
        (records[:1], {"id": "long not null"}),
        ([truncated, *records], {"name": "string not null"}),
        ([truncated], {"id": "long not null"}),
        ([records[0], b"\0\0\0\0\2\0\x08\1"], {"id": "long not null"}),
    ):
        proposal = propose(given, REGISTRY)
        assert proposal is not None
        assert proposal.document["columns"] == columns


def test_numbers_that_look_like_schema_ids_are_bytes_where_the_registry_knows_none() -> None:
    proposal = propose([(1763800000000 + n).to_bytes(8) for n in range(3)], REGISTRY)
    assert proposal is not None
    assert proposal.document == {"format": "bytes", "columns": {"value": "binary"}}
    assert proposal.remarks == [
        "if these begin with schema ids (105130 …), name their registry: r has none of them",
        "8 bytes each: for numbers of Kafka's LongSerializer declare the type long",
    ]


def test_a_key_that_cannot_be_proposed_does_not_hide_the_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = pa.table({"key": [b"\0\0\0\0\1\2"], "value": [b'{"a": 1}']})
    monkeypatch.setattr(infer_command, "newest_records", lambda *_: records)
    found = infer_command._show(cast(KafkaCluster, SimpleNamespace(name="kafka")), "t", None, 9)
    assert (found["key"], found["value"]) == (None, {"format": "json", "columns": {"a": "long"}})
    assert "# no key is proposed: the records are in a registry's wire format" in capsys.readouterr().out


@pytest.mark.parametrize("record", [b"{}", b'{"schema": {"type": "struct", "fields": []}, "payload": {}}'])
def test_objects_without_fields_have_no_columns(record: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"only empty objects.* Fix: declare the columns by hand"):
        propose([record, record], None)


def test_record_without_fields_in_a_record_is_text() -> None:
    fields = [{"field": "a", "type": "int32"}, {"field": "begun", "type": "struct", "fields": []}]
    record = {"schema": {"type": "struct", "fields": fields}, "payload": {"a": 1, "begun": {}}}
    proposal = propose([json.dumps(record).encode()], None)
    assert proposal is not None
    assert proposal.document["columns"] == {"a": "int not null", "begun": "text not null"}


def test_a_proposal_is_yaml_whatever_records_are_called() -> None:
    name = "a\nb: [\x01\u2028{"
    records = [json.dumps({name: kind}).encode() for kind in (1, "x")]
    proposal = propose(records, None)
    assert proposal is not None
    assert yaml.safe_load(proposal.yaml("value")) == {"value": proposal.document}
    assert name in proposal.document["columns"]


def test_number_of_too_many_digits_is_left_out() -> None:
    whole = {"schema": CONNECT, "payload": {"a": 1}}
    long = b'{"schema":null,"payload":' + b"1" * 5000 + b"}"
    proposal = propose([json.dumps(whole).encode(), long], None)
    assert proposal is not None
    assert proposal.document == {"format": "connect_json", "columns": {"a": "int not null"}}


def test_json_schema() -> None:
    schema = {
        "type": "object",
        "required": ["id"],
        "$defs": {"money": {"type": "object", "properties": {"units": {"type": "integer"}}}},
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": ["null", "string"]},
            "at": {"type": "string", "format": "date-time"},
            "day": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]},
            "price": {"$ref": "#/$defs/money"},
            "tags": {"type": "array", "items": {"type": "number"}},
            "labels": {"type": "object", "additionalProperties": {"type": "boolean"}},
        },
    }
    assert type_name(natural_type(json_schema_wire(schema))) == (
        "struct<id: long not null, name: string, at: timestamp, day: date, price: struct<units: long>, "
        "tags: array<double not null>, labels: map<string,boolean>>"
    )
    with pytest.raises(ConfigurationError, match=r"x: any has no column type"):
        natural_type(json_schema_wire({"type": "object", "properties": {"x": {}}}), "")


@pytest.mark.parametrize("schema", ["v1", {"name": "orders"}, [1], {"type": "struct"}, {"type": "other"}])
def test_fields_called_schema_and_payload_need_not_be_those_of_connect(schema: object) -> None:
    found = propose([json.dumps({"schema": schema, "payload": {"id": 7}}).encode()], None)
    assert found
    assert (found.document["format"], found.document["columns"]["payload"]) == ("json", "struct<id: long>")
    assert found.trial.fitting == 1
