"""Adds to a struct the fields that a table has and a decoder does not fill."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def with_fields(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The struct with missing fields as nulls, also nested ones, in the order of `wanted`."""
    if values.type == wanted:
        return values
    if not (pa.types.is_struct(values.type) and pa.types.is_struct(wanted)):
        return values.cast(wanted)
    have = {f.name for f in values.type}
    # In a list: to Arrow, a text that begins with a dot is a path.
    parts = [
        with_fields(pc.struct_field(values, [f.name]), f.type) if f.name in have else pa.nulls(len(values), f.type)
        for f in wanted
    ]
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=pc.is_null(values))
