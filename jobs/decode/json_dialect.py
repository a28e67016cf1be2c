"""What JSON without a schema leaves open: the unit of times that are numbers, and how decimals are written.

Debezium's JsonConverter with `schemas.enable=false` writes timestamps in the unit of the source's precision, and
decimals (`decimal.handling.mode=precise`) as the base64 of their unscaled bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.decode.base import DecodeError, Refused
from jobs.decode.convert import converter
from jobs.schema.wire import Wire

Refuse = Callable[[int, DecodeError], None]


@dataclass(frozen=True)
class JsonDialect:
    """How columns of the row (not what is nested in them) are written, where it is not as the JSON decoder reads."""

    timestamps: str = "ms"
    decimals: str = "text"

    def wire(self, column: pa.Field) -> pa.Field:
        """The column as the JSON decoder is to read it."""
        return pa.field(column.name, self._read_as(column.type) or column.type, metadata=column.metadata)

    def declared(self, values: pa.Array, column: pa.Field, refuse: Refuse) -> pa.Array:
        """The column as declared, from what `wire` has read; `refuse` gets row and error of what does not fit."""
        if self._read_as(column.type) is None:
            return values.cast(column.type)
        convert = converter(self._meaning(column.type), column.type, column.name)
        found: list[Any] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                found.append(None if value is None else convert(value) if convert else value)
            except Refused as refused:
                refuse(row, refused.error)
                found.append(None)
        return pa.array(found, column.type)

    def _read_as(self, kind: pa.DataType) -> pa.DataType | None:
        if pa.types.is_timestamp(kind) and self.timestamps != "ms":
            return pa.int64()
        return pa.string() if pa.types.is_decimal(kind) and self.decimals == "base64" else None

    def _meaning(self, kind: pa.DataType) -> Wire:
        if pa.types.is_timestamp(kind):
            return Wire("long", f"timestamp-{self.timestamps}")
        return Wire("bytes", "decimal", scale=kind.scale, bytes_as="base64")
