"""How JSON represents times and decimals, which JSON itself does not define: marks on fields for decoders of JSON.

Debezium's JsonConverter with `schemas.enable=false` writes timestamps in the unit of the source's precision, and
decimals (`decimal.handling.mode=precise`) as the base64 of their unscaled bytes. It writes timestamps with a zone as
text.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

_UNIT, _SCALE = b"json.unit", b"json.scale"


@dataclass(frozen=True)
class JsonDialect:
    """How top-level columns of the row are written, if not in the JSON decoder's default way."""

    timestamps: str = "ms"
    decimals: str = "text"

    def marked(self, column: pa.Field) -> pa.Field:
        """The column with marks for decoders of JSON."""
        if pa.types.is_timestamp(column.type) and self.timestamps != "ms":
            return _marked(column, _UNIT, self.timestamps)
        if pa.types.is_decimal(column.type) and self.decimals == "base64":
            return in_base64(column, column.type.scale)
        return column

    def of_row(self, kind: pa.StructType) -> pa.StructType:
        return pa.struct([self.marked(f) for f in kind])


def in_base64(field: pa.Field, scale: int) -> pa.Field:
    """The field, marked as decimals whose text is the base64 of unscaled bytes."""
    return _marked(field, _SCALE, str(scale))


def unit_of(field: pa.Field) -> str:
    """The unit of timestamps that are numbers: ms, us or ns."""
    return str((field.metadata or {}).get(_UNIT, b"ms"), "ascii")


def base64_scale(field: pa.Field) -> int | None:
    """The scale of decimals whose text is base64; None: the text is the number."""
    scale = (field.metadata or {}).get(_SCALE)
    return None if scale is None else int(scale)


def _marked(field: pa.Field, mark: bytes, value: str) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), mark: value.encode()})
