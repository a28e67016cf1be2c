"""The schemas that Kafka Connect's JsonConverter writes beside each payload, as wire types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.schema.connect_names import with_name
from jobs.schema.wire import Wire

_KINDS = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "string": "string",
}


def connect_wire(schema: Mapping[str, Any]) -> Wire:
    """The wire type of a Connect schema; raises KeyError or TypeError if it is not one."""
    kind = schema["type"]
    match kind:
        case "struct":
            found = Wire("record", fields=tuple((f["field"], connect_wire(f)) for f in schema["fields"]))
        case "array":
            found = Wire("array", items=(connect_wire(schema["items"]),))
        case "map":
            found = Wire("map", items=(connect_wire(schema["keys"]), connect_wire(schema["values"])))
        case "bytes":
            found = Wire("bytes", bytes_as="base64")
        case _:
            found = Wire(_KINDS[kind], json_number=_KINDS[kind] in ("int", "long", "float", "double"))
    named = with_name(found, schema.get("name"), schema.get("parameters"))
    return named.optional() if schema.get("optional") else named
