"""Converts a parsed value of a known wire type to a declared type.

The same rules for Avro, Protobuf and Connect's JSON:

====================  ===============================================================================================
declared              accepted
====================  ===============================================================================================
``boolean``           boolean
``int``, ``long``     whole numbers that fit; dates and times as the number that they are
``float``, ``double``  numbers; infinities and NaN as they are, but no overflow from double to float;
                      in Connect's JSON these three are strings
``decimal(p,s)``      decimals, whole numbers, text that is a number, floats: if the number fits exactly
``string``            text, enum, uuid, time of day (ISO), decimals as plain text
``text``              the same; any other value of a field as JSON (`jobs.decode.meant`)
``binary``            bytes, fixed
``uuid`` ``time`` ``fixed(n)``  see `jobs.decode.forms`
``date``              dates, ``"YYYY-MM-DD"``
``timestamp``         timestamps of any unit (digits below microseconds are cut), RFC 3339 text, else milliseconds
``timestamp_ntz``     the same without a zone
``array map struct``  the like; fields by name, a missing one is null, others are left out
``struct``            a union of unlike types: one field per branch, by Connect's names (``string``, a record's name)
====================  ===============================================================================================
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from jobs.decode import best_fit
from jobs.decode.base import Refused
from jobs.decode.branches import branch_signs
from jobs.decode.forms import ISO_TIME, has_form, in_form, wire_in_form
from jobs.decode.meant import text_converter
from jobs.decode.scalars import Convert, as_it_is, scalar_converter
from jobs.schema.types import form_of, is_text, shown_type, type_name
from jobs.schema.wire import Wire


class Unrepresentable(Exception):
    """The wire type cannot be converted to the declared type; the message names the column and both types."""


def converter(wire: Wire, kind: pa.DataType, path: str = "") -> Convert | None:
    """A function for values that are not null, which raises Refused; None if values need no conversion.

    Raises:
        Unrepresentable: the types are incompatible.
    """
    where = f"column {path}" if path else "the record"
    if wire.kind == "union":
        return _union(wire, kind, path)
    if pa.types.is_struct(kind) and wire.kind == "record":
        return _struct(wire, kind, path)
    if pa.types.is_list(kind) and wire.kind == "array":
        return _array(wire.items[0], kind, f"{path}.element" if path else "element")
    if pa.types.is_map(kind) and wire.kind == "map":
        return _map(wire, kind, f"{path}.value" if path else "value")
    found = scalar_converter(wire, kind, where)
    if found is not None:
        return None if found is as_it_is else found
    raise Unrepresentable(f"{where}: expected {type_name(kind)}, the record's schema has {wire}")


def _struct(wire: Wire, kind: pa.StructType, path: str) -> Convert | None:
    """Converts a record; copies it only if a field has to be changed."""
    known = dict(wire.fields)
    # JSON beside a schema may have values for them, of which nothing says what they mean.
    absent = [field.name for field in kind if field.name not in known]
    work: list[tuple[str, Convert]] = []
    required: list[tuple[str, str]] = []
    for field in kind:
        inner_path = f"{path}.{field.name}" if path else field.name
        found = known.get(field.name)
        convert = _field(found, field, inner_path) if found else None
        if found and convert:
            work.append((field.name, convert))
        if not field.nullable:  # also where the schema says so: JSON beside a schema need not keep to it
            required.append((field.name, f"column {inner_path}: expected {shown_type(field)} not null"))
    if not work and not required and not absent:
        return None

    def convert_all(value: dict[str, Any]) -> dict[str, Any]:
        converted = dict(value)
        for name in absent:
            converted.pop(name, None)
        for name, expected in required:
            if converted.get(name) is None:
                raise Refused("missing", f"{expected}, found {'null' if name in converted else 'nothing'}")
        for name, convert in work:
            inner = converted.get(name)
            if inner is not None:
                converted[name] = convert(inner)
        return converted

    return convert_all


def _field(wire: Wire, field: pa.Field, path: str) -> Convert | None:
    if form := form_of(field):
        return _in_form(wire, field, form, path)
    try:
        convert = converter(wire, field.type, path)
    except Unrepresentable:
        if is_text(field):
            return text_converter(wire)
        if fitted := best_fit.of_wire(wire, field, f"column {path}"):
            return fitted
        raise
    return best_fit.of_json(field, convert) if convert and wire.kind == "string" else convert


def _in_form(wire: Wire, field: pa.Field, form: str, path: str) -> Convert:
    where, read = f"column {path}", wire_in_form(wire, form)
    if not has_form(read, form):
        raise Unrepresentable(f"{where}: expected {form}, the record's schema has {wire}")
    convert, of_value = converter(read, field.type, path) or as_it_is, in_form(form, where)
    if read.logical == ISO_TIME:
        return lambda value: of_value(value.removesuffix("Z"))
    return lambda value: of_value(convert(value))


def _array(wire: Wire, kind: pa.ListType, path: str) -> Convert | None:
    element = _field(wire, kind.value_field, path)
    required = not kind.value_field.nullable
    if element is None and not required:
        return None

    def convert(value: list[Any]) -> list[Any]:
        if required and None in value:
            raise Refused("missing", f"column {path}: expected {shown_type(kind.value_field)} not null, found null")
        return value if element is None else [None if item is None else element(item) for item in value]

    return convert


def _map(wire: Wire, kind: pa.MapType, path: str) -> Convert:
    key_wire, item_wire = wire.items
    key = converter(key_wire, kind.key_type, path) or as_it_is
    item = _field(item_wire, kind.item_field, path) or as_it_is
    required = not kind.item_field.nullable

    def convert(value: Any) -> list[tuple[Any, Any]]:
        pairs = value.items() if isinstance(value, dict) else value
        if required and any(inner is None for _, inner in pairs):
            raise Refused("missing", f"column {path}: expected {shown_type(kind.item_field)} not null, found null")
        return [(key(name), None if inner is None else item(inner)) for name, inner in pairs]

    return convert


_WIDER = {"int": "long", "float": "double"}


def _union(wire: Wire, kind: pa.DataType, path: str) -> Convert:
    """Converts a value of a union, whose branch is known by its name or its Python type.

    Every branch must fit the declared type, unless that is a struct with the branches as its fields.
    """
    branches = dict(wire.fields)
    apart = pa.types.is_struct(kind) and branches.keys() >= {f.name for f in kind}
    converts: dict[object, Convert] = {}
    meant: dict[object, Wire] = {}
    signs = branch_signs(wire)
    for (name, written), sign in zip(wire.fields, signs, strict=True):
        branch = _widened(written) if not apart and signs.count(sign) > 1 else written
        found = _into(name, branch, kind, path) if apart else converter(branch, kind, path) or as_it_is
        if sign in converts and (apart or not (branch == meant[sign] or found is converts[sign] is as_it_is)):
            raise Unrepresentable(f"column {path}: the branches of a {wire} cannot be distinguished by their values")
        converts[sign], meant[sign] = found, branch

    def convert(value: Any) -> Any:
        if type(value) is tuple:
            name, inner = value
            return converts[name.rpartition(".")[2]](inner)
        return converts[type(value)](value)

    return convert


def _widened(branch: Wire) -> Wire:
    """Numbers of both sizes have one type in Python, and the conversion of the larger ones is right for all."""
    return replace(branch, kind=_WIDER.get(branch.kind, branch.kind))


def _into(name: str, branch: Wire, kind: pa.StructType, path: str) -> Convert:
    """Converts to the struct of a union in which only this branch is set; none if the branch is not declared."""
    if kind.get_field_index(name) < 0:
        return lambda _value: {}
    convert = _field(branch, kind.field(name), f"{path}.{name}" if path else name) or as_it_is
    return lambda value: {name: convert(value)}
