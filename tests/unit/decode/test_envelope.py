"""Change data of Debezium (with schema and without, flattened or not), AWS DMS and Debezium MongoDB."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from jobs.decode.base import Decoded, DecodeError, Decoder
from jobs.decode.decoders import Schemas, decoder_for
from jobs.decode.envelope import Enveloped
from jobs.decode.envelope_shape import EnvelopeRules
from jobs.decode.extended_json import MongoKey
from jobs.decode.json_dialect import JsonDialect
from jobs.decode.parts import SMALL
from jobs.decode.registered import RegisteredSchema
from jobs.decode.unknown import Watch
from jobs.schema.found_fields import FoundField
from tests.kit.arrow import copied, raw_values, row_type
from tests.kit.avro import encoded
from tests.kit.avro import record as avro_record
from tests.kit.avro import text as avro_text

MANY = 2 * SMALL
COLUMNS = {"id": "long not null", "name": "string", "_op": "string"}


def decode(
    records: list[Any], rules: EnvelopeRules, columns: dict[str, str] | None = None, format: str = "json"
) -> Decoded:
    """Records as JSON; None is a tombstone, text is taken as it is."""
    kind = row_type(columns or COLUMNS)
    decoder = copied(Enveloped(kind, rules, lambda inner, _: decoder_for(format, inner)))
    assert decoder.type == kind
    raws = [r if r is None else (r if isinstance(r, str) else json.dumps(r)).encode() for r in records]
    decoded: Decoded = decoder.decode(raw_values(*raws))
    assert decoded.values.type == kind
    return decoded


def rules(kind: str, **more: Any) -> EnvelopeRules:
    return EnvelopeRules(kind, {"_op": "op", **more.pop("metadata", {})}, **more)


def change(op: str, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": 7, "ts_ms": 1000}, "ts_ms": 2000, **more}


def row(n: int, name: str | None = "a") -> dict[str, Any]:
    return {"id": n, "name": name}


def dms(op: str, before: Any = None, data: Any = None) -> dict[str, Any]:
    words = {"c": "insert", "u": "update", "d": "delete"}
    return {"before": before, "data": data, "metadata": {"operation": words[op], "record-type": "data"}}


BAD = {"id": 1, "name": {"not": "a string"}}


@pytest.mark.parametrize("kind", ["debezium", "dms"])
def test_bad_old_value_refuses_neither_the_update_that_corrects_it_nor_the_delete(kind: str) -> None:
    changes = [("u", BAD, row(1)), ("d", BAD, None), ("u", row(1), BAD), ("c", None, row(2))]
    made = [(change if kind == "debezium" else dms)(*of) for of in changes]
    enough = decode(made, rules(kind, of_deletes=frozenset({"id"})))
    assert [v and (v["_op"], v["id"], v["name"]) for v in enough.values.to_pylist()] == [
        ("u", 1, "a"), ("d", 1, None), None, ("c", 2, "a")
    ]  # fmt: skip
    assert list(enough.errors) == [2]
    for needed in (None, frozenset({"id", "name"})):
        all_of_it = decode(made, rules(kind, of_deletes=needed))
        assert list(all_of_it.errors) == [*([0] if needed else []), 1, 2], "a transform may look at any value"


def test_bad_old_value_that_a_column_has_is_refused() -> None:
    columns = {**COLUMNS, "was": "string"}
    named = rules("debezium", metadata={"was": "before.name"}, of_deletes=frozenset({"id"}))
    assert list(decode([change("u", BAD, row(1)), change("c", None, row(1))], named, columns).errors) == [0]


def test_bad_old_value_that_a_wider_column_has() -> None:
    """The row has an int, and a metadata column the same field as a long: both are read as the row's type."""
    columns = {"id": "long not null", "qty": "int", "_op": "string", "old": "long"}
    named = rules("debezium", metadata={"old": "before.qty"}, of_deletes=frozenset({"id"}))
    made = [change("u", {"id": 1, "qty": 3 * 10**9}, {"id": 1, "qty": 5}), change("d", {"id": 1, "qty": 4})]
    decoded = decode(made, named, columns)
    assert (list(decoded.errors), decoded.values.to_pylist()[1]["old"]) == ([0], 4)


@pytest.mark.parametrize("times", [1, MANY])
@pytest.mark.parametrize("format_", ["json", "json of a registry", "connect_json", "avro"])
def test_unknown_field_beside_a_bad_old_value_counts_once(format_: str, times: int) -> None:
    """Formats with a schema report the fields of records that they refuse, JSON does not."""
    columns, before, after = {"id": "long", "n": "int"}, {"id": 1, "n": 2**40}, {"id": 1, "n": 5, "extra": 7}
    of_row = ("id", "n", "extra")
    schema = b""
    registered: Schemas | None = None
    if format_ == "avro":
        optional = [(name, ["null", "long"]) for name in of_row]
        written = avro_record(
            ("op", "string"), ("before", avro_record(*optional, name="Row")), ("after", "Row"), name="Change"
        )
        schema, raw = avro_text(written).encode(), encoded(written, change("u", {**before, "extra": None}, after))
    elif format_ == "connect_json":
        fields = [{"field": name, "type": "int64", "optional": True} for name in of_row]
        images = [{"field": name, "type": "struct", "fields": fields} for name in ("before", "after")]
        kind = {"type": "struct", "fields": [{"field": "op", "type": "string"}, *images]}
        raw = json.dumps({"schema": kind, "payload": {"op": "u", "before": before, "after": after}}).encode()
    else:
        raw = json.dumps(change("u", before, after)).encode()
    if format_ == "json of a registry":
        image = {"type": "object", "properties": {name: {"type": "integer"} for name in of_row}}
        text = json.dumps({"type": "object", "properties": {"before": image, "after": image}})
        registered, raw = {1: RegisteredSchema(1, "JSON", (text,))}, b"\0\0\0\0\1" + raw

    def inner(kind: pa.DataType, watch: Watch | None) -> Decoder:
        return decoder_for(format_.split(maxsplit=1)[0], kind, schema, registered=registered, watch=watch)

    debezium = EnvelopeRules("debezium", {}, of_deletes=frozenset({"id"}))
    decoded = Enveloped(row_type(columns), debezium, inner, Watch()).decode(raw_values(*[raw] * times))
    assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{"id": 1, "n": 5}] * times)
    assert decoded.unknown.by_path == {("extra",): FoundField(pa.int64(), times)}


@pytest.mark.parametrize("needed", [None, frozenset({"id"})])
def test_bad_value_of_a_flat_delete(needed: frozenset[str] | None) -> None:
    made = [{**BAD, "__deleted": "true"}, {**BAD, "__deleted": "false"}, {**row(2), "__deleted": "true"}]
    decoded = decode(made, rules("debezium_flat", of_deletes=needed))
    assert list(decoded.errors) == [*([0] if needed is None else []), 1]
    if needed:
        assert decoded.values.to_pylist()[0] == {"id": 1, "name": None, "_op": "d"}


def test_bad_value_of_a_row_that_dms_deletes() -> None:
    """It brings the row in `data`, as that of any other change."""
    made = [dms("d", None, BAD), dms("u", None, BAD), dms("d", None, row(2))]
    for metadata, bad in ({}, [1]), ({"was": "data.name"}, [0, 1]):
        named = rules("dms", metadata=metadata, of_deletes=frozenset({"id"}))
        decoded = decode(made, named, {**COLUMNS, **dict.fromkeys(metadata, "string")})
        assert list(decoded.errors) == bad
        assert decoded.values.to_pylist()[2]["id"] == 2


def test_bad_value_of_a_flat_delete_that_a_wider_column_has() -> None:
    columns = {"id": "long not null", "qty": "int", "_op": "string", "wide": "long"}
    named = rules("debezium_flat", metadata={"wide": "qty"}, of_deletes=frozenset({"id"}))
    made = [{"id": n, "qty": qty, "__deleted": "true"} for n, qty in enumerate([2**40, 4])]
    decoded = decode(made, named, columns)
    assert (list(decoded.errors), decoded.values.to_pylist()[1]["wide"]) == ([0], 4)


def test_bad_old_value_where_a_column_has_the_whole_row_before() -> None:
    columns = {"id": "long not null", "n": "int", "_op": "string", "before": "struct<n: long>"}
    named = rules("debezium", metadata={"before": "before"}, of_deletes=frozenset({"id"}))
    made = [change("u", {"id": 1, "n": 2**40}, {"id": 1, "n": 5}), change("u", {"id": 1, "n": 4}, {"id": 1, "n": 5})]
    decoded = decode(made, named, columns)
    assert (list(decoded.errors), decoded.values.to_pylist()[1]["before"]) == ([0], {"n": 4})


def test_changed_key_is_seen_beside_a_bad_old_value() -> None:
    made = [dms("u", {"id": 1, "name": BAD}, row(2))]
    decoded = decode(made, rules("dms", key=frozenset({"id"})))
    assert "was changed" in decoded.errors[0].message


def test_changed_key_of_dms_is_refused() -> None:
    made = [dms("u", row(1), row(2)), dms("u", row(1), row(1, "b")), dms("u", None, row(3)), dms("d", row(1), row(2))]
    decoded = decode(made, rules("dms", key=frozenset({"id", "of_the_record_key"})))
    assert {n: e.message for n, e in decoded.errors.items()} == {
        0: "the key column id was changed, and DMS sends no delete of the row with the old key: update the row once "
        "more at the source, which brings all of it, and delete the old one by hand"
    }
    assert decode(made, rules("dms")).errors == {}, "tables with a row a change take it"


def test_debezium() -> None:
    records = [
        change("r", None, row(1)),
        change("c", None, row(2)),
        change("u", row(2), row(2, "b")),
        change("d", {"id": 2, "name": None}),  # the key alone, as with REPLICA IDENTITY DEFAULT
        None,
        change("t"),
        {"op": "m", "message": {"prefix": "p"}},
        change("x", None, row(3)),
        change("u", row(4), None),
        change("c", None, {"name": "no id"}),
        change("c", None, {"id": "4"}),
        "{",
        {"other": 1},
    ]
    decoded = decode(records, rules("debezium"))
    found = [(v["_op"], v["id"], v["name"]) if v else None for v in decoded.values.to_pylist()]
    assert found == [("r", 1, "a"), ("c", 2, "a"), ("u", 2, "b"), ("d", 2, None), *[None] * 9]
    assert decoded.filtered == {4, 6}
    assert {n: e.kind for n, e in decoded.errors.items()} == {
        5: "type", 7: "type", 8: "missing", 9: "missing", 10: "type", 11: "undecodable", 12: "type"
    }  # fmt: skip
    assert decoded.errors[5].message == "the table was truncated"
    assert decoded.errors[9].message == "column id: expected long not null, found null"


def test_truncates_and_tombstones_by_choice() -> None:
    chosen = rules("debezium", truncates="skip", skips_tombstones=False)
    decoded = decode([change("t"), None], chosen)
    assert (decoded.errors, decoded.filtered) == ({}, frozenset({0}))
    assert decoded.values.to_pylist() == [None, None]
    applied = decode([change("t")], rules("debezium", truncates="apply"))
    assert (applied.errors, applied.filtered) == ({}, frozenset())
    assert [v["_op"] for v in applied.values.to_pylist()] == ["t"]


def test_metadata_and_before_image() -> None:
    metadata = {"_lsn": "source.lsn", "_at": "ts_ms", "_source": "source", "_old": "before", "_tx": "transaction.id"}
    columns = {**COLUMNS, "_lsn": "long", "_at": "timestamp", "_source": "struct<ts_ms: long>",
               "_old": "struct<name: string>", "_tx": "string"}  # fmt: skip
    records = [change("u", row(1, "old"), row(1, "new"), transaction={"id": "5:1"}), change("d", row(1))]
    first, second = decode(records, rules("debezium", metadata=metadata), columns).values.to_pylist()
    assert first == {
        "id": 1, "name": "new", "_op": "u", "_lsn": 7, "_at": datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
        "_source": {"ts_ms": 1000}, "_old": {"name": "old"}, "_tx": "5:1",
    }  # fmt: skip
    assert (second["_op"], second["_lsn"], second["_tx"], second["id"]) == ("d", 7, None, 1)


def test_values_that_debezium_left_out() -> None:
    left_out = "__debezium_unavailable_value"
    records = [
        change("u", None, row(1, left_out)),
        change("u", row(1, left_out), row(1, "b")),
        change("d", row(1, left_out)),
    ]
    refused = decode(records, rules("debezium"))
    assert {n: (e.kind, e.message) for n, e in refused.errors.items()} == {
        0: ("missing", "column name: the change does not bring its value")
    }
    nulled = decode(records, rules("debezium", unavailable="null"))
    assert [v["name"] for v in nulled.values.to_pylist()] == [None, "b", None]


def test_debezium_flat() -> None:
    records = [
        {"id": 1, "name": "a", "__op": "c"},
        {"id": 1, "name": "b"},
        {"id": 1, "name": None, "__deleted": "true"},
        {"id": 2, "__op": "d", "__lsn": 5},
        None,
    ]
    columns = {**COLUMNS, "_lsn": "long"}
    chosen = rules("debezium_flat", metadata={"_lsn": "__lsn"}, skips_tombstones=False)
    decoded = decode(records, chosen, columns)
    assert (decoded.errors, decoded.filtered) == ({}, frozenset())
    found = [(v["_op"], v["id"], v["_lsn"]) if v else None for v in decoded.values.to_pylist()]
    assert found == [("c", 1, None), ("u", 1, None), ("d", 1, None), ("d", 2, 5), None]


@pytest.mark.parametrize("deleted", ["boolean", "string"])
@pytest.mark.parametrize("format", ["json", "avro"])
@pytest.mark.parametrize("times", [1, MANY])
def test_debezium_flat_says_deleted_as_text_or_not(deleted: str, format: str, times: int) -> None:
    values = [True, False] if deleted == "boolean" else ["true", "false"]
    schema = avro_record(("id", "long"), ("__deleted", deleted))
    rows = [{"id": n, "__deleted": value} for n, value in enumerate(values)] * times
    raws = [encoded(schema, one) if format == "avro" else json.dumps(one).encode() for one in rows]
    text = avro_text(schema).encode()
    flat = Enveloped(
        row_type({"id": "long", "_op": "string"}),
        rules("debezium_flat"),
        lambda inner, _: decoder_for(format, inner, text),
    )
    decoded = flat.decode(raw_values(*raws))
    assert not decoded.errors
    assert decoded.values.to_pylist() == [{"id": 0, "_op": "d"}, {"id": 1, "_op": "u"}] * times


def test_dms() -> None:
    def message(operation: str, data: Any = None, kind: str = "data", before: Any = None) -> dict[str, Any]:
        metadata = {"operation": operation, "record-type": kind, "timestamp": "2020-01-01T00:00:00Z"}
        return {"data": data, "metadata": metadata, **({"before": before} if before else {})}

    records = [
        message("load", row(1)),
        message("insert", row(2)),
        message("update", row(2, "b"), before=row(2)),
        message("delete", row(2, "b")),
        message("create-table", kind="control"),
        message("truncate-table", kind="control"),
        message("teleport", row(3)),
    ]
    columns = {**COLUMNS, "_at": "timestamp"}
    decoded = decode(records, rules("dms", metadata={"_at": "metadata.timestamp"}), columns)
    found = [(v["_op"], v["id"], v["name"]) if v else None for v in decoded.values.to_pylist()]
    assert found == [("r", 1, "a"), ("c", 2, "a"), ("u", 2, "b"), ("d", 2, "b"), None, None, None]
    assert decoded.values.to_pylist()[0]["_at"] == datetime(2020, 1, 1, tzinfo=UTC)
    assert decoded.filtered == {4}
    assert set(decoded.errors) == {5, 6}


def test_mongo() -> None:
    document = {
        "_id": {"$oid": "5f"}, "n": {"$numberLong": "5"}, "price": {"$numberDecimal": "1.50"},
        "at": {"$date": {"$numberLong": "-1"}}, "raw": {"$binary": {"base64": "/w==", "subType": "00"}},
        "tags": ["a", {"$numberInt": "1"}], "ratio": {"$numberDouble": "-Infinity"},
        "inner": {"x": {"$date": "2020-01-01T00:00:00Z"}},
    }  # fmt: skip
    columns = {
        "_id": "string not null", "n": "long", "price": "decimal(5,2)", "at": "timestamp", "raw": "binary",
        "ratio": "double", "inner": "struct<x: timestamp>", "_op": "string",
    }  # fmt: skip
    records = [
        {"op": "c", "after": json.dumps(document)},
        {"op": "u", "after": None, "updateDescription": {"updatedFields": "{}"}},
        {"op": "d", "before": None, "after": None},
        {"op": "c", "after": "{"},
        {"op": "c", "after": '{"_id": {"$oid": "1"}, "n": "x"}'},
        None,
    ]
    decoded = decode(records, rules("mongo"), columns)
    first, _, third, *_ = decoded.values.to_pylist()
    assert first == {
        "_id": "5f", "n": 5, "price": Decimal("1.50"), "at": datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
        "raw": b"\xff", "ratio": -math.inf, "inner": {"x": datetime(2020, 1, 1, tzinfo=UTC)}, "_op": "c",
    }  # fmt: skip
    assert (third["_op"], third["_id"]) == ("d", None)  # its key names the document
    assert {n: e.kind for n, e in decoded.errors.items()} == {1: "missing", 3: "undecodable", 4: "type"}
    assert decoded.filtered == {5}
    assert decode(records, rules("mongo", skips_without_row=True), columns).filtered == {1, 5}


def test_uuids_of_documents_are_bytes_of_subtype_4() -> None:
    """As MongoDB's drivers write them. Those of subtype 3 have another order of bytes in each driver."""
    uuid = UUID("61f0c404-5cb3-11e7-907b-a6006ad3dba0")

    def of(subtype: str, value: bytes = uuid.bytes) -> dict[str, Any]:
        return {"$binary": {"base64": base64.b64encode(value).decode(), "subType": subtype}}

    old = {"$binary": base64.b64encode(uuid.bytes).decode(), "$type": "4"}  # Extended JSON before v2
    columns = {
        "_id": "uuid", "old": "uuid", "all": "array<struct<one: uuid>>", "by": "map<string,uuid>", "raw": "binary",
        "text": "string", "_op": "string",
    }  # fmt: skip
    good = {"_id": of("04"), "old": old, "all": [{"one": of("4")}, None], "by": {"a": of("04")}, "raw": of("04")}
    documents = [
        {**good, "text": of("04")},
        {"_id": of("03")},
        {"_id": of("04", b"short")},
        {"_id": {"$uuid": str(uuid)}},
    ]
    decoded = decode([{"op": "c", "after": json.dumps(one)} for one in documents], rules("mongo"), columns)
    first, *_, last = decoded.values.to_pylist()
    assert first == {
        "_id": str(uuid), "old": str(uuid), "all": [{"one": str(uuid)}, None], "by": [("a", str(uuid))],
        "raw": uuid.bytes, "text": base64.b64encode(uuid.bytes).decode(), "_op": "c",
    }  # fmt: skip
    assert last["_id"] == str(uuid)
    assert {n: e.kind for n, e in decoded.errors.items()} == {1: "type", 2: "type"}
    key = MongoKey(row_type({"_id": "uuid"}), lambda kind: decoder_for("json", kind))
    found = copied(key).decode(raw_values({"id": json.dumps(of("04"))}, {"id": json.dumps(of("03"))}))
    assert (found.values.to_pylist()[0], list(found.errors)) == ({"_id": str(uuid)}, [1])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_documents_have_numbers_that_json_has_not(number: str) -> None:
    """As MongoDB's driver writes them in the mode of Debezium's connector."""
    texts = [f'{{"_id": 1, "ratio": {number}, "other": [{number}]}}', f'{{"_id": 2, "n": {number}}}']
    records = [{"op": "c", "after": text} for text in texts]
    columns = {"_id": "long", "ratio": "double", "n": "long", "_op": "string"}
    decoded = decode(records, rules("mongo"), columns)
    assert repr(decoded.values.to_pylist()[0]) == repr({"_id": 1, "ratio": float(number), "n": None, "_op": "c"})
    assert decoded.errors == {1: DecodeError("type", "column n: expected long, found a string")}


@pytest.mark.parametrize(
    ("column", "text", "wanted"),
    [("string", '{"$oid": "5f"}', "5f"), ("long", '{"$numberLong": "7"}', 7), ("string", '"plain"', "plain"),
     ("struct<a: long>", '{"a": 1}', {"a": 1})],
)  # fmt: skip
def test_mongo_key(column: str, text: str, wanted: Any) -> None:
    kind = row_type({"_id": column})
    decoder = copied(MongoKey(kind, lambda inner: decoder_for("json", inner)))
    raw = raw_values(json.dumps({"id": text}).encode(), b"{", None, json.dumps({"id": "{"}).encode())
    decoded = decoder.decode(raw)
    assert decoded.values.to_pylist() == [{"_id": wanted}, None, None, None]
    assert set(decoded.errors) == {1, 3}


DIALECT = JsonDialect("us", "base64")


def base64_of(number: int, size: int = 2) -> str:
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def test_json_without_schema_needs_units() -> None:
    columns = {
        "id": "long", "price": "decimal(5,2)", "at": "timestamp", "local": "timestamp_ntz", "day": "date",
        "_op": "string", "_old": "struct<price: decimal(5,2)>",
    }  # fmt: skip
    zoned = "2026-05-01T14:00:00.5+02:00"
    good = [
        change("u", {"price": base64_of(100)}, {"id": 1, "price": base64_of(-150), "at": 1_500_000, "day": 1}),
        change("c", None, {"id": 2, "price": base64_of(150), "at": zoned, "local": -1}),
        change("c", None, {"id": 3, "price": 1.5}),
    ]
    bad = [
        change("c", None, {"id": 4, "price": "no", "at": 1, "day": 1}),
        change("c", None, {"id": 5, "price": base64_of(2**31 - 1, 4)}),
        change("c", None, {"id": 6, "at": "soon"}),
        change("c", None, {"id": 7, "at": 2**62}),
    ]
    chosen = rules("debezium", dialect=DIALECT, metadata={"_old": "before"})
    decoded = decode([*good, *bad], chosen, columns)
    first, second, third = decoded.values.to_pylist()[:3]
    assert (first["price"], first["at"]) == (Decimal("-1.50"), datetime(1970, 1, 1, 0, 0, 1, 500000, UTC))
    assert (first["_old"], third["price"]) == ({"price": Decimal("1.00")}, Decimal("1.50"))
    assert (second["price"], second["at"]) == (Decimal("1.50"), datetime(2026, 5, 1, 12, 0, 0, 500000, UTC))
    assert second["local"] == datetime(1969, 12, 31, 23, 59, 59, 999999)
    assert {n: e.kind for n, e in decoded.errors.items()} == {3: "type", 4: "range", 5: "type", 6: "range"}
    for records in (good[:1], good[1:2], good, [*good, *bad]):
        times = MANY // len(records) + 1
        alone = [decode([one], chosen, columns) for one in records]
        together = decode(records * times, chosen, columns)
        assert together.values.to_pylist() == [one.values[0].as_py() for one in alone] * times
        assert {n: together.errors.get(n) for n in range(len(records))} == {
            n: one.errors.get(0) for n, one in enumerate(alone)
        }


@pytest.mark.parametrize("times", [1, MANY])
def test_units_by_column(times: int) -> None:
    columns = {
        "created": "timestamp", "changed": "timestamp", "s": "struct<at: array<timestamp>>", "_was": "timestamp",
        "_old": "struct<created: timestamp, changed: timestamp>", "_inner": "timestamp", "_op": "string",
    }  # fmt: skip
    chosen = rules(
        "debezium",
        dialect=JsonDialect({"*": "us", "created": "ms", "s": "ns", "t": "s"}),
        metadata={"_was": "before.created", "_old": "before", "_inner": "before.t.at"},
    )
    ticks = {"created": 1_700_000_000_000, "changed": 1_700_000_000_000_000, "s": {"at": [1_700_000_000_000_000_000]},
             "t": {"at": 1_700_000_000}}  # fmt: skip
    decoded = decode([change("u", ticks, ticks)] * times, chosen, columns)
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert decoded.values.to_pylist() == [
        {"created": at, "changed": at, "s": {"at": [at]}, "_was": at, "_old": {"created": at, "changed": at},
         "_inner": at, "_op": "u"}
    ] * times  # fmt: skip


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_what_brings_its_own_schema_has_its_own_units(unit: str) -> None:
    at = {"type": "long", "connect.name": "io.debezium.time.Timestamp"}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}
    image = avro_record(("at", at), ("price", price), name="Value")
    schema = avro_text(avro_record(("before", ["null", image]), ("after", ["null", "Value"]), ("op", "string")))
    kind = row_type({"at": "timestamp", "price": "decimal(5,2)", "_op": "string"})
    chosen = rules("debezium", dialect=JsonDialect(unit, "base64"))
    decoder = Enveloped(kind, chosen, lambda inner, _: decoder_for("avro", inner, schema.encode()))
    raw = encoded(
        json.loads(schema), {"before": None, "after": {"at": 1_700_000_000_123, "price": Decimal(15)}, "op": "c"}
    )
    decoded = copied(decoder).decode(raw_values(raw))
    assert decoded.values.to_pylist() == [
        {"at": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC), "price": Decimal("15.00"), "_op": "c"}
    ]


@pytest.mark.parametrize(
    ("columns", "metadata", "wanted"),
    [
        ({}, {"_was": "before.status"}, {"_was": "a"}),
        ({"status": "string"}, {"_was": "before.status"}, {"_was": "a", "status": "b"}),
        ({"n": "int"}, {"_was": "before.n"}, {"_was": 1, "n": 2}),
        ({"s": "struct<x: long>"}, {"_was": "before.s.y"}, {"_was": "old", "s": {"x": 2}}),
        ({"s": "struct<x: long>"}, {"_was": "before"}, {"_was": {"status": "a", "s": {"y": "old"}}, "s": {"x": 2}}),
    ],
)
@pytest.mark.parametrize("kind", ["debezium", "dms"])
def test_metadata_of_the_images_of_a_row(
    kind: str, columns: dict[str, str], metadata: dict[str, str], wanted: dict[str, Any]
) -> None:
    types = {"before.n": "long", "before": "struct<status: string, s: struct<y: string>>"}
    was = types.get(metadata["_was"], "string")
    before = {"status": "a", "n": 1, "s": {"x": 1, "y": "old"}}
    after = {"status": "b", "n": 2, "s": {"x": 2, "y": "new"}}
    records = {
        "debezium": change("u", before, after),
        "dms": {"before": before, "data": after, "metadata": {"operation": "update", "record-type": "data"}},
    }
    decoded = decode([records[kind]], rules(kind, metadata=metadata), {**columns, "_was": was, "_op": "string"})
    assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{**wanted, "_op": "u"}])


def test_with_connect_schema() -> None:
    def struct(name: str, *fields: tuple[str, str], optional: bool = True) -> dict[str, Any]:
        return {
            "type": "struct",
            "field": name,
            "optional": optional,
            "fields": [{"field": f, "type": t, "optional": True} for f, t in fields],
        }

    image = [("id", "int64"), ("name", "string")]
    schema = {"type": "struct", "fields": [struct("before", *image), struct("after", *image),
              {"field": "op", "type": "string"}]}  # fmt: skip
    changes = [change("c", None, row(1)), change("d", row(1))]
    records = [*({"schema": schema, "payload": payload} for payload in changes), {"schema": None, "payload": None}]
    decoded = decode(records, rules("debezium"), format="connect_json")
    assert [v and v["_op"] for v in decoded.values.to_pylist()] == ["c", "d", None]
    assert (decoded.errors, decoded.filtered) == ({}, frozenset({2}))


def test_registered_avro() -> None:
    image = avro_record(("id", "long"), ("name", ["null", "string"]), name="Value")
    source = avro_record(("lsn", ["null", "long"]), name="Source")
    schema = avro_record(
        ("before", ["null", image]), ("after", ["null", "Value"]), ("source", source), ("op", "string"), name="Envelope"
    )
    schemas: Schemas = {5: RegisteredSchema(5, "AVRO", (avro_text(schema),))}
    columns = {**COLUMNS, "_lsn": "long"}
    kind = row_type(columns)
    chosen = rules("debezium", metadata={"_lsn": "source.lsn"})
    decoder = Enveloped(kind, chosen, lambda inner, _: decoder_for("avro", inner, registered=schemas))
    records = [change("c", None, row(1), source={"lsn": 1}), change("d", row(1), None, source={"lsn": None})]
    raws = [encoded(schema, {k: r[k] for k in ("before", "after", "source", "op")}, 5) for r in records]
    decoded = copied(decoder).decode(raw_values(*raws, b"\x00\x00\x00\x00\x06", None))
    found = [(v["_op"], v["id"], v["_lsn"]) if v else None for v in decoded.values.to_pylist()]
    assert found == [("c", 1, 1), ("d", 1, None), None, None]
    assert {n: e.kind for n, e in decoded.errors.items()} == {2: "schema"}
    assert decoded.filtered == {3}
