"""How records are read where their format does not say it: marks on fields for decoders.

JSON defines neither times nor decimals, and producers write numbers as text (`jobs.decode.best_fit`).
Debezium's JsonConverter with `schemas.enable=false` writes timestamps in the unit of the source's precision, and
decimals (`decimal.handling.mode=precise`) as the base64 of their unscaled bytes. It writes timestamps with a zone as
text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from jobs.schema.types import form_of, inside, with_inside

OTHERS = "*"
_UNIT, _SCALE, _FIT = b"json.unit", b"json.scale", b"best_fit"


@dataclass(frozen=True)
class JsonDialect:
    """How columns are written, nested fields too, if not in the decoder's default way.

    Attributes:
        timestamps: the unit of timestamps and times that are numbers; or the units by column, `OTHERS` for all others.
        decimals: `base64` of their unscaled bytes, or `text`.
        best_fit: whether values of other types are read that say the same (`jobs.decode.best_fit`).
    """

    timestamps: str | Mapping[str, str] = "ms"
    decimals: str = "text"
    best_fit: bool = False

    def marked(self, column: pa.Field) -> pa.Field:
        """The column with marks for decoders."""
        units = self.timestamps
        unit = units if isinstance(units, str) else units.get(column.name, units.get(OTHERS, "ms"))
        return column if self == JsonDialect() else self._with_unit(column, unit)

    def _with_unit(self, column: pa.Field, unit: str) -> pa.Field:
        kind = column.type
        marked = column.with_type(with_inside(kind, [self._with_unit(f, unit) for f in inside(kind)]))
        if (pa.types.is_timestamp(kind) or form_of(column) == "time") and unit != "ms":
            marked = _marked(marked, _UNIT, unit)
        if pa.types.is_decimal(kind) and self.decimals == "base64":
            marked = in_base64(marked, kind.scale)
        return _marked(marked, _FIT, "") if self.best_fit else marked

    def of_row(self, kind: pa.StructType) -> pa.StructType:
        return pa.struct([self.marked(f) for f in kind])


def in_base64(field: pa.Field, scale: int) -> pa.Field:
    """The field, marked as decimals whose text is the base64 of unscaled bytes."""
    return _marked(field, _SCALE, str(scale))


def unit_of(field: pa.Field) -> str:
    """The unit of timestamps that are numbers: s, ms, us or ns."""
    return str((field.metadata or {}).get(_UNIT, b"ms"), "ascii")


def base64_scale(field: pa.Field) -> int | None:
    """The scale of decimals whose text is base64; None: the text is the number."""
    scale = (field.metadata or {}).get(_SCALE)
    return None if scale is None else int(scale)


def is_best_fit(field: pa.Field) -> bool:
    """Whether values of other types are read that say the same."""
    return _FIT in (field.metadata or {})


def _marked(field: pa.Field, mark: bytes, value: str) -> pa.Field:
    return field.with_metadata({**(field.metadata or {}), mark: value.encode()})
