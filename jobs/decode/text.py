"""Records that are a single value: UTF-8 text, or plain bytes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Refused, decode_each
from jobs.schema.types import type_name
from resources.errors import ConfigurationError


class _OneValue:
    """A decoder of a scalar type, or of a struct with one field of it."""

    format: str
    scalar: pa.DataType

    def __init__(self, kind: pa.DataType) -> None:
        """Raises ConfigurationError unless the type is the format's scalar or a struct of one such column."""
        self.type = kind
        wrapped = pa.types.is_struct(kind) and kind.num_fields == 1
        if (kind.field(0).type if wrapped else kind) != self.scalar:
            raise ConfigurationError(
                f"records in the format {self.format} cannot be {type_name(kind)}",
                remedy=f"declare one column of type {type_name(self.scalar)}, or another format",
            )
        self._wrapped = wrapped

    def _shape(self, values: pa.Array) -> pa.Array:
        if not self._wrapped:
            return values
        return pa.StructArray.from_arrays([values], fields=[self.type.field(0)], mask=values.is_null())


class Text(_OneValue):
    """UTF-8 text (`string`); other bytes are refused."""

    format = "string"
    scalar = pa.string()

    def decode(self, raw: pa.Array) -> Decoded:
        try:
            return Decoded(self._shape(pc.cast(raw, pa.string())), {})
        except pa.ArrowInvalid:
            values, errors = decode_each(raw, _text)
            return Decoded(self._shape(pa.array(values, pa.string())), errors)


def _text(record: bytes) -> str:
    try:
        return record.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("undecodable", f"the record: expected string, no UTF-8 at byte {error.start}") from None


class Bytes(_OneValue):
    """Plain bytes (`binary`); nothing is refused."""

    format = "bytes"
    scalar = pa.binary()

    def decode(self, raw: pa.Array) -> Decoded:
        return Decoded(self._shape(pc.cast(raw, pa.binary())), {})
