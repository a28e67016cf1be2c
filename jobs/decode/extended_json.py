"""MongoDB's Extended JSON (v2, canonical and relaxed): its documents and keys, and conversion to plain JSON.

Bytes become base64, except for columns of type `uuid`: drivers write UUIDs as bytes of subtype 4. Those of the legacy
subtype 3 have another order in each driver, and are no UUIDs for us.

Source: MongoDB's specification "Extended JSON", Debezium's documentation of its MongoDB connector.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Decoder, Refused, decode_each
from jobs.decode.json_fast import Json
from jobs.decode.json_strict import parse_json
from jobs.schema.types import form_of, inside

ID = "_id"
# What has UUIDs (`_uuids_in`): a UUID itself, fields by name, or all values of a map.
_UUID = "uuid"
_OF_MAP = ""
_Uuids = str | Mapping[str, Any] | None
_UUID_SUBTYPE = 4


class MongoKey:
    """Keys of Debezium's MongoDB topics: a field `id` with the document's `_id` as Extended JSON."""

    def __init__(self, kind: pa.StructType, inner: Callable[[pa.DataType], Decoder]) -> None:
        self.type, self._inner, self._json = kind, inner(pa.struct([("id", pa.string())])), Json(kind)

    def decode(self, raw: pa.Array) -> Decoded:
        decoded = self._inner.decode(raw)
        found = decode_documents(self._json, pc.struct_field(decoded.values, "id"), as_id=True)
        return Decoded(found.values, {**found.errors, **decoded.errors})


def decode_documents(decoder: Decoder, texts: pa.Array, as_id: bool = False) -> Decoded:
    """Decodes documents; with `as_id` each text is only the document's `_id`."""
    uuids = _uuids_in(pa.field("", decoder.type))
    if as_id and isinstance(uuids, dict):
        uuids = uuids.get(ID)
    plain_texts, errors = decode_each(texts, lambda text: plain_text(text, as_id, uuids))
    decoded = decoder.decode(pa.array(plain_texts, pa.binary()))
    return Decoded(decoded.values, {**decoded.errors, **errors}, unknown=decoded.unknown)


def plain_text(text: str, as_id: bool = False, uuids: _Uuids = None) -> bytes:
    """A document in plain JSON; raises Refused."""
    try:
        # Debezium's connector writes NaN and Infinity as they are, which the text of a document may have.
        document = plain(parse_json(text.encode(), constants=True), uuids)
        return json.dumps({ID: document} if as_id else document).encode()
    except (KeyError, TypeError, ValueError):
        raise Refused("undecodable", "the document is no Extended JSON") from None


def plain(value: Any, uuids: _Uuids = None) -> Any:
    """A parsed value without the wrappers of Extended JSON: dates as milliseconds or text, decimals as text."""
    if isinstance(value, list):
        return [plain(one, uuids) for one in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), "")
    if name.startswith("$") and name in _WRAPPERS and len(value) <= 2:
        return _uuid(value) if uuids == _UUID and name == "$binary" else _WRAPPERS[name](value[name])
    if isinstance(uuids, dict):
        of_all = uuids.get(_OF_MAP)
        return {field: plain(inner, uuids.get(field, of_all)) for field, inner in value.items()}
    return {field: plain(inner) for field, inner in value.items()}


def _uuids_in(field: pa.Field) -> _Uuids:
    """Where a value of this field has UUIDs; those of an array are at the array's own place."""
    if form_of(field) == "uuid":
        return _UUID
    if pa.types.is_list(field.type):
        return _uuids_in(field.type.value_field)
    if pa.types.is_map(field.type):
        return {_OF_MAP: found} if (found := _uuids_in(field.type.item_field)) else None
    return {inner.name: found for inner in inside(field.type) if (found := _uuids_in(inner))} or None


def _uuid(wrapped: Mapping[str, Any]) -> Any:
    """A UUID's text, from bytes of its subtype; else base64, which is none."""
    value = wrapped["$binary"]
    subtype = value["subType"] if isinstance(value, dict) else wrapped.get("$type", 0)
    raw = b64decode(_binary(value), validate=True) if int(str(subtype), 16) == _UUID_SUBTYPE else b""
    return str(UUID(bytes=raw)) if len(raw) == 16 else _binary(value)


def _date(value: Any) -> Any:
    return int(value["$numberLong"]) if isinstance(value, dict) else value


def _number(value: Any) -> Any:
    number = float(value)
    return number if number - number == 0 else json.dumps(number)  # text for numbers that JSON does not have


def _binary(value: Any) -> Any:
    return value["base64"] if isinstance(value, dict) else value


def _nothing(_value: Any) -> None:
    return None


_WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "$oid": str,
    "$numberInt": int,
    "$numberLong": int,
    "$numberDouble": _number,
    "$numberDecimal": str,
    "$date": _date,
    "$binary": _binary,
    "$uuid": str,
    "$symbol": str,
    "$timestamp": lambda value: int(value["t"]) * 1000,
    "$regularExpression": lambda value: value["pattern"],
    "$undefined": _nothing,
    "$minKey": _nothing,
    "$maxKey": _nothing,
}
