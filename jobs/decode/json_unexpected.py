"""Undeclared fields that Arrow's JSON reader has found: their types, and which records have them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.unknown import LARGEST_WHOLE, Watch
from jobs.schema.found_fields import FoundField, FoundFields, Path, known_type, struct_of


def unexpected(read: pa.Table, declared: pa.StructType, watch: Watch) -> list[tuple[Path, pa.Array, pa.Array | None]]:
    """Path, values and, for each record, whether it has the field (None if that is not needed).

    Args:
        declared: the columns, without the one for rescued fields; they come first in `read`.
    """
    if read.num_columns == declared.num_fields and all(
        column.type == field.type for column, field in zip(read.columns, declared, strict=True)
    ):
        return []
    struct = pa.StructArray.from_arrays([c.combine_chunks() for c in read.columns], names=read.column_names)
    found = (one for one in _in_struct(struct, declared, ()) if watch.observes(one[0]))
    return [(path, values, rows) for path, values, rows in found if not pa.types.is_null(values.type)]


def found_fields(found: list[tuple[Path, pa.Array, pa.Array | None]]) -> FoundFields:
    """The fields that were found, with the types of columns that accept them."""
    fields = FoundFields()
    for path, values, _ in found:
        kind, records = known_type(_column_type(values)), len(values) - values.null_count
        if kind is not None and records:
            fields += FoundFields({path: FoundField(kind, records)})
    return fields


def records_with(found: list[tuple[Path, pa.Array, pa.Array | None]]) -> pa.Array | None:
    """The records that have any of these fields; None if nothing was found."""
    masks = [rows for _, _, rows in found if rows is not None]
    return reduce(pc.or_, masks) if masks else None


def _in_struct(
    values: pa.StructArray, declared: pa.StructType, path: Path
) -> Iterator[tuple[Path, pa.Array, pa.Array]]:
    known = {f.name: f.type for f in declared}
    for number, child in enumerate(values.flatten()):
        name = values.type.field(number).name
        if name not in known:
            yield (*path, name), child, child.is_valid()
        elif child.type != known[name]:
            yield from _in(child, known[name], (*path, name))


def _in(values: pa.Array, declared: pa.DataType, path: Path) -> Iterator[tuple[Path, pa.Array, pa.Array]]:
    if pa.types.is_struct(declared) and pa.types.is_struct(values.type):
        yield from _in_struct(values, declared, path)
    elif pa.types.is_list(declared) and pa.types.is_list(values.type):
        rows = pc.list_parent_indices(values)
        for inner, child, has in _in(values.flatten(), declared.value_type, (*path, "element")):
            mask = pc.is_in(pa.array(range(len(values)), rows.type), value_set=pc.unique(rows.filter(has)))
            yield inner, child, mask


def _column_type(values: pa.Array) -> pa.DataType:
    """The type of a column for values whose type Arrow has inferred; times are text, since other texts may follow."""
    kind = values.type
    if pa.types.is_struct(kind):
        return struct_of({kind.field(n).name: _column_type(child) for n, child in enumerate(values.flatten())})
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _column_type(values.flatten())))
    if pa.types.is_floating(kind):
        # Arrow reads larger integers as floats, which lose digits: a text column keeps them.
        return pa.string() if pc.any(pc.greater_equal(pc.abs(values), float(LARGEST_WHOLE))).as_py() else kind
    return kind if kind in (pa.null(), pa.bool_(), pa.int64()) else pa.string()
