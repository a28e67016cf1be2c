"""Converts plain values of a wire type to a declared type, whole columns at a time, as `jobs.decode.convert` does.

Decimals are read as bytes, times as numbers, enums as text, unions of several types as a struct with one field per
branch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.branches import branch_signs
from jobs.decode.columns.arrays import arrow
from jobs.decode.columns.assembly import structs
from jobs.decode.columns.cursors import Ints
from jobs.decode.columns.scalars import Cast, scalar_cast
from jobs.decode.forms import ISO_TIME, all_in_form, has_form, wire_in_form
from jobs.schema.types import form_of
from jobs.schema.wire import Wire

Convert = Callable[[pa.Array], tuple[pa.Array, Ints]]
"""Values of the declared type, and the rows that the row decoder has to read (their values here are meaningless)."""

_NONE: Ints = np.zeros(0, np.int64)
_NARROW = 16  # if one of at most this many rows does not fit, all are given up


def column_converter(wire: Wire, kind: pa.DataType) -> Convert | None:
    """The conversion; None if these types are left to the row decoder."""
    if wire.kind == "union":
        return _union(wire, kind)
    if pa.types.is_struct(kind):
        return _struct(wire, kind) if wire.kind == "record" else None
    if pa.types.is_list(kind):
        return _array(wire, kind) if wire.kind == "array" else None
    if pa.types.is_map(kind):
        return _map(wire, kind) if wire.kind == "map" else None
    cast = scalar_cast(wire, kind)
    return None if cast is None else lambda values: _cast(values, cast, kind)


def _field(wire: Wire, field: pa.Field) -> Convert | None:
    form = form_of(field)
    if not form:
        return column_converter(wire, field.type)
    read = wire_in_form(wire, form)
    cast = scalar_cast(read, field.type) if has_form(read, form) else None
    if cast is None or read.logical == ISO_TIME:
        return None
    return lambda values: _cast(values, lambda some: all_in_form(cast(some), form), field.type)


def _cast(values: pa.Array, cast: Cast, kind: pa.DataType) -> tuple[pa.Array, Ints]:
    try:
        return cast(values), _NONE
    except pa.ArrowInvalid:
        if len(values) <= _NARROW:
            return pa.nulls(len(values), kind), np.arange(len(values))
    half = len(values) // 2
    (first, bad), (second, others) = (_cast(part, cast, kind) for part in (values[:half], values[half:]))
    return pa.concat_arrays([first, second]), np.concatenate([bad, others + half])


def _struct(wire: Wire, kind: pa.StructType) -> Convert | None:
    known = dict(wire.fields)
    work: list[tuple[pa.Field, Convert | None]] = []
    for field in kind:
        convert = _field(known[field.name], field) if field.name in known else None
        if field.name in known and convert is None:
            return None
        work.append((field, convert))

    def convert_all(values: pa.Array) -> tuple[pa.Array, Ints]:
        found = dict(zip((f.name for f in values.type), values.flatten(), strict=True))
        columns, bad = [], []
        for field, convert in work:
            column, rows = convert(found[field.name]) if convert else (pa.nulls(len(values), field.type), _NONE)
            columns.append(column)
            bad.append(rows)
            if not field.nullable and column.null_count > values.null_count:
                bad.append(_rows(pc.and_(column.is_null(), values.is_valid())))
        return structs(columns, list(kind), values, len(values)), _all(bad)

    return convert_all


def _array(wire: Wire, kind: pa.ListType) -> Convert | None:
    element = _field(wire.items[0], kind.value_field)
    if element is None:
        return None

    def convert(values: pa.Array) -> tuple[pa.Array, Ints]:
        offsets, items = _items(values)
        column, bad = element(items)
        if not kind.value_field.nullable and column.null_count:
            bad = _all([bad, _rows(column.is_null())])
        found = pa.ListArray.from_arrays(offsets, column, type=kind, mask=_mask(values))
        return found, _owners(offsets, bad)

    return convert


def _map(wire: Wire, kind: pa.MapType) -> Convert | None:
    fields = tuple(zip(("key", "value"), wire.items, strict=True))
    entry = _struct(Wire("record", fields=fields), pa.struct([kind.key_field, kind.item_field.with_name("value")]))
    if entry is None:
        return None

    def convert(values: pa.Array) -> tuple[pa.Array, Ints]:
        offsets, entries = _items(values)
        pairs, bad = entry(entries)
        keys, items = pairs.flatten()
        if keys.null_count:
            keys = keys.fill_null(pa.scalar("").cast(kind.key_type)) if pa.types.is_string(kind.key_type) else keys
        found = pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=_mask(values))
        return found, _owners(offsets, bad)

    return convert


_NUMBERS = ("int", "long", "float", "double")


def _union(wire: Wire, kind: pa.DataType) -> Convert | None:
    branches = dict(wire.fields)
    apart = pa.types.is_struct(kind) and branches.keys() >= {f.name for f in kind}
    alike = not apart and all(branch.kind in _NUMBERS and not branch.logical for branch in branches.values())
    if len(set(branch_signs(wire))) < len(wire.fields) and not alike:
        return None  # the row decoder may choose another branch
    if apart:
        as_record = _struct(Wire("record", fields=wire.fields), kind)
        names = list(branches)
        return None if as_record is None else lambda values: as_record(_named(values, names))
    converts = [column_converter(branch, kind) for branch in branches.values()]
    if None in converts:
        return None

    def convert(values: pa.Array) -> tuple[pa.Array, Ints]:
        found = [of(part) for of, part in zip(converts, values.flatten(), strict=True) if of]
        return pc.coalesce(*(column for column, _ in found)), _all([bad for _, bad in found])

    return convert


def _named(values: pa.Array, names: list[str]) -> pa.Array:
    return pa.StructArray.from_arrays(values.flatten(), names=names, mask=_mask(values))


def _items(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """List offsets starting at 0, and the items."""
    raw = values.offsets.to_numpy()
    return arrow(raw - raw[0]), values.values[int(raw[0]) : int(raw[-1])]


def _mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _rows(mask: pa.Array) -> Ints:
    found: Ints = pc.indices_nonzero(mask).to_numpy().astype(np.int64)
    return found


def _owners(offsets: pa.Array, items: Ints) -> Ints:
    return np.searchsorted(offsets.to_numpy(), items, side="right") - 1 if len(items) else _NONE


def _all(rows: list[Ints]) -> Ints:
    found = [one for one in rows if len(one)]
    return np.concatenate(found) if found else _NONE
