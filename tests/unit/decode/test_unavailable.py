"""Debezium's placeholder in every form, and what the decoder makes of records with it."""

from __future__ import annotations

import base64
import json
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from jobs.decode.base import Decoded
from jobs.decode.by_topic import decode_by_topic
from jobs.decode.decoders import decoder_for
from jobs.decode.envelope import Enveloped
from jobs.decode.envelope_shape import EnvelopeRules
from jobs.decode.unavailable import DEFAULT, Placeholder, may_hold
from jobs.schema.types import parse_columns
from tests.kit.arrow import raw_values, row_type

OTHER = "hex:00ff10"
# `UUID.nameUUIDFromBytes` of Java, computed there.
AS_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", DEFAULT),
        ("string", base64.b64encode(DEFAULT.encode()).decode()),
        ("string", DEFAULT.encode().hex()),
        ("string", json.dumps({DEFAULT: DEFAULT}, separators=(",", ":"))),
        ("binary", DEFAULT.encode()),
        ("array<string>", [DEFAULT]),
        ("array<string>", [AS_UUID]),
        ("array<binary>", [DEFAULT.encode()]),
        ("array<int>", list(DEFAULT.encode())),
        ("array<long>", list(DEFAULT.encode())),
        ("array<double>", [float(b) for b in DEFAULT.encode()]),
        ("array<date>", [date.fromordinal(date(1970, 1, 1).toordinal() + b) for b in DEFAULT.encode()]),
        ("map<string,string>", [(DEFAULT, DEFAULT)]),
    ],
)
def test_every_form(kind: str, value: Any) -> None:
    column = parse_columns({"c": kind}).field("c").type
    near = value[:-1]
    longer = [*value, *value] if isinstance(value, list) and not isinstance(value[0], tuple) else None
    values = pa.array([None, value, near, longer, value], column)
    held = Placeholder().held_by(values)
    assert held is not None
    assert held.to_pylist() == [False, True, False, False, True]
    sliced = Placeholder().held_by(values.slice(1, 3))
    assert sliced is not None
    assert sliced.to_pylist() == [True, False, False]


def test_placeholder_of_bytes() -> None:
    held = Placeholder(OTHER)
    assert held.bytes == b"\x00\xff\x10"
    forms: list[tuple[str, list[Any]]] = [
        ("string", ["AP8Q", "00ff10", DEFAULT]),
        ("binary", [b"\x00\xff\x10", b"\x00\xff\x10", DEFAULT.encode()]),
        ("array<int>", [[0, -1, 16], [0, -1, 16], [0, 255, 16]]),
    ]
    for kind, values in forms:
        found = held.held_by(pa.array(values, parse_columns({"c": kind}).field("c").type))
        assert found is not None
        assert found.to_pylist() == [True, True, False], kind


@pytest.mark.parametrize("written", ["hex:xy", "", "hex:"])
def test_placeholder_that_is_none(written: str) -> None:
    with pytest.raises(ValueError, match=r"empty|hexadecimal"):
        Placeholder(written)


@pytest.mark.parametrize("kind", ["long", "boolean", "struct<a: string>", "map<string,long>", "array<array<string>>"])
def test_types_that_cannot_hold_it(kind: str) -> None:
    column = parse_columns({"c": kind}).field("c").type
    assert not may_hold(column)
    assert Placeholder().held_by(pa.nulls(2, column)) is None


COLUMNS = {"id": "long not null", "name": "string", "doc": "string not null", "raw": "binary", "_op": "string"}
LEFT = {"name": DEFAULT, "raw": base64.b64encode(DEFAULT.encode()).decode()}


def decoder(kind: str = "debezium", columns: dict[str, str] = COLUMNS, **rules: Any) -> Enveloped:
    row = row_type(columns)
    return Enveloped(row, EnvelopeRules(kind, {"_op": "op"}, **rules), lambda inner, _: decoder_for("json", inner))


def change(op: str, **columns: Any) -> dict[str, Any]:
    row = {"id": 1, "name": "a", "doc": "d", "raw": "AQ==", **columns}
    return {"op": op, "before": row, "after": None if op == "d" else row}


def values(decoded: Decoded) -> list[Any]:
    return [(v["name"], v["raw"]) if v else None for v in decoded.values.to_pylist()]


def test_kept_columns_are_named_and_null() -> None:
    records = [change("u", **LEFT), change("c"), change("u", name=DEFAULT), change("d", **LEFT), None]
    decoded = decoder(may_be_unchanged=frozenset({"name", "raw"})).decode(raw_values(*records))
    assert decoded.unchanged == {0: ("name", "raw"), 2: ("name",)}
    assert decoded.errors == {}
    assert values(decoded) == [(None, None), ("a", b"\x01"), (None, b"\x01"), (None, None), None]


def test_column_that_cannot_be_kept_is_refused() -> None:
    records = [change("u", name=DEFAULT, doc=DEFAULT), change("u", name=DEFAULT)]
    decoded = decoder(may_be_unchanged=frozenset({"name"})).decode(raw_values(*records))
    assert {n: (e.kind, e.message) for n, e in decoded.errors.items()} == {
        0: (
            "missing",
            "column doc: the change does not bring its value, and a key column or one that is `not null` keeps none",
        )
    }
    assert decoded.unchanged == {1: ("name",)}, "a bad record keeps nothing"


@pytest.mark.parametrize("op", ["c", "r"])
def test_new_row_that_leaves_a_value_out_is_refused(op: str) -> None:
    """A changed primary key comes as a delete and an insert, and there is no row before the insert."""
    decoded = decoder(may_be_unchanged=frozenset({"name"})).decode(raw_values(change(op, name=DEFAULT)))
    assert (decoded.unchanged, [e.kind for e in decoded.errors.values()]) == ({}, ["moved"])
    assert (
        "the primary key was changed, and the landed changes of the old key do not say it" in decoded.errors[0].message
    )


def test_null_instead() -> None:
    decoded = decoder(unavailable="null").decode(raw_values(change("u", **LEFT)))
    assert (decoded.unchanged, decoded.errors, values(decoded)) == ({}, {}, [(None, None)])


def test_flattened_row_and_another_placeholder() -> None:
    record = {"id": 1, "name": "gone", "doc": "d", "raw": "Z29uZQ==", "__op": "u"}
    rules: dict[str, Any] = {"may_be_unchanged": frozenset({"name", "raw"}), "placeholder": Placeholder("gone")}
    decoded = decoder("debezium_flat", **rules).decode(raw_values(record))
    assert decoded.unchanged == {0: ("name", "raw")}
    usual = {"id": 1, "name": DEFAULT, "doc": "d", "__op": "u"}
    assert decoder("debezium_flat", **rules).decode(raw_values(usual)).unchanged == {}


def test_arrays_and_maps() -> None:
    columns = {"id": "long", "tags": "array<string>", "more": "map<string,string>", "_op": "string"}
    row = {"id": 1, "tags": [DEFAULT], "more": {DEFAULT: DEFAULT}}
    records = [{"op": "u", "after": row}, {"op": "u", "after": {"id": 2}}]
    decoded = decoder(columns=columns, may_be_unchanged=frozenset({"tags", "more"})).decode(raw_values(*records))
    assert decoded.unchanged == {0: ("tags", "more")}
    assert [(v["tags"], v["more"]) for v in decoded.values.to_pylist()] == [(None, None), (None, None)]


def test_topics_of_two_encodings() -> None:
    """What is kept stays with its record."""
    keeps = decoder(may_be_unchanged=frozenset({"name"}))
    flat = decoder("debezium_flat", may_be_unchanged=frozenset({"name"}))
    row = {"id": 1, "name": DEFAULT, "doc": "d"}
    records = raw_values(change("c"), row, change("u", name=DEFAULT))
    decoded = decode_by_topic(keeps, {"b": flat}, records, pa.array(["a", "b", "a"]))
    assert decoded.unchanged == {1: ("name",), 2: ("name",)}
