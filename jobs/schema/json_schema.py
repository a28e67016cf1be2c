"""JSON Schemas as wire types, and the types of columns for their fields.

Source: JSON Schema drafts 4 to 2020-12; Confluent's JsonSchemaConverter for `title` and `connect.type`. JSON has
integers for Connect's times; columns read them as milliseconds and days.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import pyarrow as pa

from jobs.schema.connect import CONNECT, with_name
from jobs.schema.found_fields import common_type, struct_of
from jobs.schema.wire import Wire, natural_type

_KINDS = {"boolean": "boolean", "integer": "long", "number": "double", "string": "string"}
_FORMATS = {"date": "date-text", "date-time": "timestamp-text", "uuid": "uuid", "time": "time-text"}
_MOST_REFERENCES = 10_000
_NARROW = ("int8", "int16", "int32")
_TITLES = {"integer": (f"{CONNECT}Timestamp", f"{CONNECT}Date"), "number": (f"{CONNECT}Decimal",)}


def json_schema_wire(schema: Any) -> Wire:
    """The wire type; a schema without a type, or with several, is `any`, which has no column type."""
    return _Reader(schema).read(schema, ())


class _Reader:
    def __init__(self, root: Any) -> None:
        self._root, self._left = root, _MOST_REFERENCES

    def read(self, schema: Any, above: tuple[str, ...]) -> Wire:
        if not isinstance(schema, Mapping):
            return Wire("any")
        if "$ref" in schema:
            return self._reference(str(schema["$ref"]), above)
        for choice in ("oneOf", "anyOf"):
            if choice in schema:
                return self._choice(schema[choice], above)
        kinds = schema.get("type", "any")
        names = [k for k in (kinds if isinstance(kinds, list) else [kinds]) if k != "null"]
        found = self._one(names[0], schema, above) if len(names) == 1 else Wire("any")
        return found.optional() if isinstance(kinds, list) and "null" in kinds else found

    def _reference(self, reference: str, above: tuple[str, ...]) -> Wire:
        """The referenced type; `any` for recursive references, which have no end, and after too many references."""
        self._left -= 1
        if reference in above or self._left < 0:
            return Wire("any")
        return self.read(_target(self._root, reference), (*above, reference))

    def _one(self, kind: str, schema: Mapping[str, Any], above: tuple[str, ...]) -> Wire:
        match kind:
            case "object" if schema.get("properties"):
                required = schema.get("required", [])
                fields = []
                for name, part in schema["properties"].items():
                    wire = self.read(part, above)
                    fields.append((name, wire if name in required else wire.optional()))
                return Wire("record", fields=tuple(fields))
            case "object":
                value = schema.get("additionalProperties")
                if not isinstance(value, Mapping):
                    return Wire("any")
                return Wire("map", items=(Wire("string"), self.read(value, above).optional()))
            case "array":
                return Wire("array", items=(self.read(schema.get("items", {}), above),))
        return _scalar(kind, schema)

    def _choice(self, branches: list[Any], above: tuple[str, ...]) -> Wire:
        real = [one for one in branches if not (isinstance(one, Mapping) and one.get("type") == "null")]
        found = self.read(real[0], above) if len(real) == 1 else Wire("any")
        return found.optional() if len(real) < len(branches) else found


def column_type(wire: Wire, seen: pa.DataType | None) -> pa.DataType | None:
    """The type of a column for a field; None if it is unknown.

    Args:
        seen: the type of the field's values, which decides what the schema does not.
    """
    match wire.kind:
        case "any":
            return seen
        case "record":
            others = _fields(seen)
            known = {name: column_type(inner, others.pop(name, None)) for name, inner in wire.fields}
            there = {name: kind for name, kind in {**known, **others}.items() if kind is not None}
            return struct_of(there) if there else None
        case "array":
            element = column_type(wire.items[0], seen.value_type if seen and pa.types.is_list(seen) else None)
            return None if element is None else pa.list_(pa.field("element", element))
        case "map":
            value = column_type(wire.items[1], reduce(common_type, _fields(seen).values()) if _fields(seen) else None)
            return None if value is None else pa.map_(pa.string(), pa.field("value", value))
    return natural_type(wire)


def _fields(kind: pa.DataType | None) -> dict[str, pa.DataType]:
    return {f.name: f.type for f in kind} if kind is not None and pa.types.is_struct(kind) else {}


def _scalar(kind: str, schema: Mapping[str, Any]) -> Wire:
    if kind == "string":
        return Wire("string", _FORMATS.get(str(schema.get("format")), ""))
    narrow = kind == "integer" and schema.get("connect.type") in _NARROW
    found = Wire("int" if narrow else _KINDS.get(kind, "any"))
    named = str(schema.get("title")) in _TITLES.get(kind, ())
    return with_name(found, schema["title"], schema.get("connect.parameters")) if named else found


def _target(root: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if part and isinstance(found, Mapping) else {}
    return found if isinstance(found, Mapping) else {}
