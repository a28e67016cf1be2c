"""Columns by another name than their fields in records (`rename`), through the reader that a pipeline file makes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from jobs.changes.columns import landing_schema
from jobs.decode.base import Decoded, Decoder
from jobs.landing.readers import record_reader
from jobs.spec.added_columns import additions
from jobs.spec.pipeline import PipelineSpec
from tests.kit import specs
from tests.kit.arrow import copied, kafka_records, raw_values
from tests.kit.avro import encoded, record, text
from tests.kit.batches import batch

RENAME = {"custID": "id", "address.zip code": "zip", "lines.element.nr": "number", "props.value.on": "active"}
COLUMNS = {
    "id": "long not null",
    "address": "struct<zip: string>",
    "lines": "array<struct<number: long>>",
    "props": "map<string, struct<active: boolean>>",
}
RECORD = {"custID": 1, "address": {"zip code": "A1"}, "lines": [{"nr": 2}, None], "props": {"p": {"on": True}}}
ROW = {"id": 1, "address": {"zip": "A1"}, "lines": [{"number": 2}, None], "props": [("p", {"active": True})]}


def spec(value: dict[str, Any], *tables: dict[str, Any], **parts: Any) -> PipelineSpec:
    return specs.spec(*tables, columns=COLUMNS, value={"rename": RENAME, **value}, **parts)


def decode(pipeline: PipelineSpec, *records: object) -> Decoded:
    reader = record_reader(pipeline, batch(1), landing_schema(pipeline))
    decoder: Decoder = copied(reader.value_decoder).usual
    found = decoder.decode(raw_values(*records))
    assert found.values.type.equals(decoder.type)
    return found


def test_renamed_fields_of_json() -> None:
    found = decode(spec({}), RECORD, {"custID": "x"})
    assert found.values.to_pylist()[0] == ROW
    assert "custID" in found.errors[1].message


def test_units_are_by_the_names_of_columns() -> None:
    value = {"columns": {"at": "timestamp", "id": "long"}, "rename": {"happened": "at"}, "time_unit": {"at": "s"}}
    found = decode(spec(value), {"happened": 1_700_000_000, "id": 1})
    assert found.values.to_pylist() == [{"at": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), "id": 1}]


def test_renamed_fields_of_records_with_a_schema_beside() -> None:
    value = {"format": "connect_json", "columns": {"id": "long"}, "rename": {"custID": "id"}}
    schema = {"type": "struct", "fields": [{"field": "custID", "type": "int64"}], "optional": True}
    found = decode(spec(value), {"schema": schema, "payload": {"custID": 1}})
    assert found.values.to_pylist() == [{"id": 1}]


def test_renamed_fields_of_avro(tmp_path: Any) -> None:
    schema = record(("custID", "long"))
    (tmp_path / "s.avsc").write_text(text(schema))
    value = {"format": "avro", "schema_file": str(tmp_path / "s.avsc"), "rename": {"custID": "id"}, "columns": {}}
    pipeline = spec(value)
    assert pipeline.source.value.columns == {"id": "long not null"}
    assert decode(pipeline, encoded(schema, {"custID": 5})).values.to_pylist() == [{"id": 5}]


def test_renamed_fields_in_an_envelope_also_where_a_value_is_left_out() -> None:
    value = {"columns": {"id": "long", "body": "string"}, "rename": {"custID": "id", "text": "body"}}
    pipeline = spec({**value, "envelope": "debezium"}, specs.table(mode="upsert"), key="id")
    change = {"op": "u", "after": {"custID": 1, "text": "__debezium_unavailable_value"}}
    found = decode(pipeline, change)
    assert found.values.to_pylist() == [{"id": 1, "body": None, "_op": "u"}]
    assert found.unchanged == {0: ("body",)}


def test_new_fields_become_columns_by_their_other_names() -> None:
    pipeline = spec({"columns": {"id": "long"}, "unknown_fields": "add"})
    found = decode(pipeline, RECORD)
    made = additions(pipeline, found.unknown)
    assert made.spec.source.value.columns == {
        "id": "long",
        "address": "struct<zip: text>",
        "lines": "array<struct<number: long>>",
        "props": "struct<p: struct<on: boolean>>",
    }
    assert decode(made.spec, RECORD).values.to_pylist()[0]["address"] == {"zip": "A1"}


DOTTED = {"id": "long", "http.status": "long", "price": "long", "unit.price": "long", "s": "struct<`x.y`: long>"}


@pytest.mark.parametrize("rename", [{}, {"custID": "id"}])
@pytest.mark.parametrize("records", [1, 200])
def test_fields_whose_names_have_dots(rename: dict[str, str], records: int) -> None:
    same = {"http.status": 404, "price": 5, "unit.price": 6}
    found = decode(
        spec({"columns": DOTTED, "rename": rename}),
        *[{**same, "custID" if rename else "id": 1, "status": 7, "s": {"x.y": 2, "y": 3}}] * records,
    )
    assert (found.values.to_pylist(), found.errors) == ([{**same, "id": 1, "s": {"x.y": 2}}] * records, {})


def test_field_whose_name_has_a_dot_is_not_the_one_that_is_renamed() -> None:
    value = {"columns": {"a": "struct<x: long>", ".b": "long"}, "rename": {"a.b": "x"}, "unknown_fields": "add"}
    pipeline = spec(value)
    record = {"a": {"b": 1}, "a.b": 2, ".b": 3}
    found = decode(pipeline, record)
    assert found.values.to_pylist() == [{"a": {"x": 1}, ".b": 3}]
    assert list(found.unknown.by_path) == [("a.b",)]


@pytest.mark.parametrize("name", ["order.id", ".id"])
def test_keys_whose_fields_have_dots_in_their_names(name: str) -> None:
    pipeline = specs.spec(key={name: "long", "id": "long"})
    reader = record_reader(pipeline, batch(1), landing_schema(pipeline))
    key = {name: 5, "id": 6}
    assert reader.read(kafka_records((key, {"id": 1}))).column("key").to_pylist() == [key]


def test_row_in_an_envelope_whose_fields_begin_with_a_dot() -> None:
    found = decode(
        spec({"columns": {".b": "long", "b": "long"}, "rename": {}, "envelope": "debezium"}),
        {"op": "c", "after": {".b": 1, "b": 2}},
    )
    assert found.values.to_pylist() == [{".b": 1, "b": 2, "_op": "c"}]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rename": {"custID": "idd"}}, "idd is not declared in `columns`"),
        ({"rename": {"a": "id", "b": "id"}}, "a is called id already"),
        ({"rename": {"address": "lines"}}, "address is declared in `columns` too"),
        ({"format": "string", "columns": {"x": "string"}, "rename": {"a": "x"}}, "records of the format string"),
    ],
)
def test_renamings_that_cannot_be(value: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        spec(value)
