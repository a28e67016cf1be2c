"""JSON Schemas as wire types: what `infer` proposes for a topic whose registry has one.

Source: JSON Schema drafts 4 to 2020-12; the title-less subset that Confluent's serializers write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.schema.wire import Wire

_KINDS = {"boolean": "boolean", "integer": "long", "number": "double", "string": "string"}
_FORMATS = {"date": "date-text", "date-time": "timestamp-text", "uuid": "uuid", "time": "time-text"}


def json_schema_wire(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None, depth: int = 0) -> Wire:
    """The wire type; what it leaves open (no type, several types) is `any`, which has no column type."""
    root = schema if root is None else root
    if depth > 32 or not isinstance(schema, Mapping):
        return Wire("any")
    if "$ref" in schema:
        return json_schema_wire(_target(root, schema["$ref"]), root, depth + 1)
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            return _choice(schema[choice], root, depth)
    kinds = schema.get("type", "any")
    names = [k for k in (kinds if isinstance(kinds, list) else [kinds]) if k != "null"]
    found = _one(names[0], schema, root, depth) if len(names) == 1 else Wire("any")
    return found.optional() if isinstance(kinds, list) and "null" in kinds else found


def _one(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Wire:
    match kind:
        case "object" if schema.get("properties"):
            required = schema.get("required", [])
            fields = []
            for name, part in schema["properties"].items():
                wire = json_schema_wire(part, root, depth + 1)
                fields.append((name, wire if name in required else wire.optional()))
            return Wire("record", fields=tuple(fields))
        case "object":
            value = schema.get("additionalProperties")
            inner = json_schema_wire(value, root, depth + 1) if isinstance(value, Mapping) else Wire("string")
            return Wire("map", items=(Wire("string"), inner.optional()))
        case "array":
            return Wire("array", items=(json_schema_wire(schema.get("items", {}), root, depth + 1),))
    logical = _FORMATS.get(str(schema.get("format")), "") if kind == "string" else ""
    return Wire(_KINDS.get(kind, "any"), logical)


def _choice(branches: list[Any], root: Mapping[str, Any], depth: int) -> Wire:
    real = [branch for branch in branches if branch.get("type") != "null"]
    found = json_schema_wire(real[0], root, depth + 1) if len(real) == 1 else Wire("any")
    return found.optional() if len(real) < len(branches) else found


def _target(root: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if part and isinstance(found, Mapping) else {}
    return found if isinstance(found, Mapping) else {}
