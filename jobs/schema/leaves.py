"""One walk over the leaves of nested Arrow values. Pure."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

# Converts leaves, given the field that is wanted and its path.
Convert = Callable[[pa.Array, pa.Field, str], pa.Array]


def with_leaves(values: pa.Array, field: pa.Field, convert: Convert, path: str = "") -> pa.Array:
    """The values with converted leaves.

    Args:
        field: what is wanted; it has the same nested fields, by name, or more or less of them.
        path: of the field.
    """
    if pa.types.is_large_list(values.type):
        values = values.cast(pa.list_(values.type.value_field))
    kind, wanted = values.type, field.type
    if not (pa.types.is_nested(kind) and kind.id == wanted.id):
        return convert(values, field, path)
    if pa.types.is_struct(kind):
        named = {inner.name: inner for inner in wanted}
        parts = [
            with_leaves(part, named.get(inner.name, inner), convert, f"{path}.{inner.name}" if path else inner.name)
            for inner, part in zip(kind, values.flatten(), strict=True)
        ]
        fields = [inner.with_type(part.type) for inner, part in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=values.is_null())
    raw = values.offsets.to_numpy()
    first, last = int(raw[0]), int(raw[-1])
    # Not by `pa.array`, which would import pandas.
    offsets = pa.Array.from_buffers(pa.int32(), len(raw), [None, pa.py_buffer(np.ascontiguousarray(raw - raw[0]))])
    mask = values.is_null() if values.null_count else None
    if pa.types.is_map(kind):
        items = with_leaves(values.items[first:last], wanted.item_field, convert, f"{path}.value")
        made = pa.map_(kind.key_type, kind.item_field.with_type(items.type))
        return pa.MapArray.from_arrays(offsets, values.keys[first:last], items, type=made, mask=mask)
    items = with_leaves(values.values[first:last], wanted.value_field, convert, f"{path}.element")
    return pa.ListArray.from_arrays(offsets, items, type=pa.list_(kind.value_field.with_type(items.type)), mask=mask)
