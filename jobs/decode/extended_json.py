"""MongoDB's Extended JSON (v2, canonical and relaxed): its documents and keys, and conversion to plain JSON.

Source: MongoDB's specification "Extended JSON", Debezium's documentation of its MongoDB connector.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Decoder, Refused, decode_each
from jobs.decode.json_fast import Json
from jobs.decode.json_strict import parse_json

ID = "_id"


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

    plain_texts, errors = decode_each(texts, lambda text: plain_text(text, as_id))
    decoded = decoder.decode(pa.array(plain_texts, pa.binary()))
    return Decoded(decoded.values, {**decoded.errors, **errors}, unknown=decoded.unknown)


def plain_text(text: str, as_id: bool = False) -> bytes:
    """A document in plain JSON; raises Refused."""
    try:
        # Debezium's connector writes NaN and Infinity as they are, which the text of a document may have.
        document = plain(parse_json(text.encode(), constants=True))
        return json.dumps({ID: document} if as_id else document).encode()
    except (KeyError, TypeError, ValueError):
        raise Refused("undecodable", "the document is no Extended JSON") from None


def plain(value: Any) -> Any:
    """A parsed value without the wrappers of Extended JSON: dates as milliseconds or text, decimals as text."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), "")
    if name.startswith("$") and name in _WRAPPERS and len(value) <= 2:
        return _WRAPPERS[name](value[name])
    return {field: plain(inner) for field, inner in value.items()}


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
