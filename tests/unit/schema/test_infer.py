"""Columns proposed from samples, and from JSON Schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.infer.propose import propose
from jobs.infer.value_types import infer_json
from jobs.schema.json_schema import json_schema_wire
from jobs.schema.types import type_name
from jobs.schema.wire import natural_type
from jobs.spec.formats import columns_text
from resources.errors import ConfigurationError

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
    ],
)
def test_types_of_values(values: list[Any], column: str) -> None:
    fields, _ = infer_json([{"c": value} for value in values])
    assert columns_text(fields) == {"c": column}


def test_remarks_for_the_person_who_approves() -> None:
    fields, remarks = infer_json([{"a": 1, "n": None}, {"a": "x"}, 5])
    assert columns_text(fields) == {"n": "string"}
    assert remarks == [
        "1 records are no objects: they would be dead letters",
        "a: left out, it has values of several kinds (long, string)",
        "n: only nulls, taken as string",
    ]


@pytest.mark.parametrize(
    ("records", "format", "columns"),
    [
        ([b'{"a":1}', b"{"], "json", {"a": "long"}),
        ([b"hello", b"you"], "string", {"value": "string"}),
        ([b"\xff", b"\xfe"], "bytes", {"value": "binary"}),
        ([b"1", b"2"], "string", {"value": "string"}),
        (
            [json.dumps({"schema": CONNECT, "payload": {"a": 1}}).encode()],
            "connect_json",
            {"a": "int not null"},
        ),
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


def test_nothing_to_see_and_a_registry_that_is_not_named() -> None:
    assert propose([], None) is None
    with pytest.raises(ConfigurationError, match="--registry"):
        propose([b"\x00\x00\x00\x00\x01\x02"], None)


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
