"""JSON in Confluent's wire format (JSON Schema). The declared columns say what is accepted, as for any JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from jobs.decode.base import Decoded, Decoder, decode_each
from jobs.decode.registered import RegisteredSchema, other_type, split, unknown


class RegisteredJson:
    """Takes the prefix off and leaves the rest to the JSON decoder; a schema id must be known, and of type JSON."""

    def __init__(self, inner: Decoder, schemas: Mapping[int, RegisteredSchema]) -> None:
        self._inner, self._schemas = inner, dict(schemas)

    def __reduce__(self) -> tuple[type[RegisteredJson], tuple[Any, ...]]:
        return type(self), (self._inner, self._schemas)

    @property
    def type(self) -> pa.DataType:
        return self._inner.type

    def decode(self, raw: pa.Array) -> Decoded:
        texts, errors = decode_each(raw, self._text)
        decoded = self._inner.decode(pa.array(texts, pa.binary()))
        return Decoded(decoded.values, {**decoded.errors, **errors}, unknown=decoded.unknown)

    def _text(self, record: bytes) -> bytes:
        schema_id, text = split(record)
        schema = self._schemas.get(schema_id)
        if schema is None:
            raise unknown(schema_id)
        if schema.type != "JSON":
            raise other_type(schema_id, "JSON", schema.type)
        return text
