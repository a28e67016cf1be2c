"""Avro schemas (specification 1.12) as wire types, and Debezium's and Connect's names in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.schema.connect import with_name
from jobs.schema.wire import Wire
from resources.errors import ConfigurationError

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")
_NAMED = ("record", "error", "enum", "fixed")
_LOGICAL = {
    ("int", "date"): "date",
    ("int", "time-millis"): "time-ms",
    ("long", "time-micros"): "time-us",
    ("long", "timestamp-millis"): "timestamp-ms",
    ("long", "timestamp-micros"): "timestamp-us",
    ("long", "timestamp-nanos"): "timestamp-ns",
    ("long", "local-timestamp-millis"): "timestamp-ms",
    ("long", "local-timestamp-micros"): "timestamp-us",
    ("long", "local-timestamp-nanos"): "timestamp-ns",
    ("string", "uuid"): "uuid",
}


def avro_wire(texts: Sequence[str], where: str = "Avro schema") -> Wire:
    """The wire type of the last of these schemas; the others are those that it refers to.

    Raises:
        ConfigurationError: not an Avro schema, or a record that contains itself.
    """
    named: dict[str, Any] = {}
    found = Wire("null")
    for text in texts:
        try:
            found = _Reader(named, where).read(json.loads(text), "")
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise ConfigurationError(
                f"this is no Avro schema: {type(problem).__name__}: {problem}", where=where, remedy="correct the schema"
            ) from None
    return found


def plain(schema: Any, defaults: bool) -> Any:
    """The schema without logical types, so that values are read as plain numbers and bytes.

    Args:
        defaults: whether it keeps its defaults, which only a reader's schema needs.
    """
    if isinstance(schema, list):
        return [plain(branch, defaults) for branch in schema]
    if isinstance(schema, dict):
        return {
            name: plain(part, defaults) if name in ("type", "items", "values", "fields") else part
            for name, part in schema.items()
            if name != "logicalType" and (defaults or name != "default")
        }
    return schema


class _Reader:
    def __init__(self, named: dict[str, Any], where: str) -> None:
        self._named, self._where = named, where

    def read(self, schema: Any, namespace: str) -> Wire:
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            return Wire(schema) if schema in _PRIMITIVES else self._reference(schema, namespace)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.read(kind, namespace)
        if kind in _NAMED:
            full = _full_name(schema, namespace)
            self._named[full] = None
            self._named[full] = found = _meant(self._definition(schema, full), schema)
            return found
        match kind:
            case "array":
                found = Wire("array", items=(self.read(schema["items"], namespace),))
            case "map":
                found = Wire("map", items=(Wire("string"), self.read(schema["values"], namespace)))
            case _:
                found = _logical(schema) if kind in _PRIMITIVES else self._reference(kind, namespace)
        return _meant(found, schema)

    def _definition(self, schema: Mapping[str, Any], full: str) -> Wire:
        """The wire type of a named type."""
        if schema["type"] == "enum":
            return Wire("string", "enum", name=full)
        if schema["type"] == "fixed":
            return replace(_logical(schema), name=full)
        space = full.rpartition(".")[0]
        fields = tuple((field["name"], self.read(field["type"], space)) for field in schema["fields"])
        return Wire("record", fields=fields, name=full)

    def _union(self, branches: list[Any], namespace: str) -> Wire:
        read = [(_branch(branch), self.read(branch, namespace)) for branch in branches]
        real = tuple((name, one) for name, one in read if one.kind != "null")
        nullable = len(real) < len(read)
        found = real[0][1] if len(real) == 1 else Wire("union", fields=real) if real else Wire("null")
        return found.optional() if nullable else found

    def _reference(self, name: str, namespace: str) -> Wire:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._named else name
        if full not in self._named:
            raise ConfigurationError(
                f"the type {name} is not defined", where=self._where, remedy="register what it refers to, or correct it"
            )
        # A record that contains itself has no column type there, but its other fields can be read.
        return self._named[full] or Wire("recursive record", name=full)


def _meant(wire: Wire, schema: Mapping[str, Any]) -> Wire:
    return with_name(wire, schema.get("connect.name"), schema.get("connect.parameters"))


def _branch(schema: Any) -> str:
    """The name that Connect's AvroConverter gives a branch of a union: the type's name without its namespace."""
    kind = schema.get("name", schema["type"]) if isinstance(schema, Mapping) else schema
    return str(kind).rpartition(".")[2]


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name, space = schema["name"], schema.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


def _logical(schema: Mapping[str, Any]) -> Wire:
    kind, logical = str(schema["type"]), str(schema.get("logicalType"))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema)
    if kind == "fixed":
        return Wire("bytes", "uuid" if logical == "uuid" and schema.get("size") == 16 else "")
    return Wire(kind, _LOGICAL.get((kind, logical), ""), local=logical.startswith("local-"))


def _decimal(schema: Mapping[str, Any]) -> Wire:
    """The wire type of a decimal; bytes if it is invalid, as the specification demands."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        return Wire("bytes")
    return Wire("bytes", "decimal", precision=precision, scale=scale)
