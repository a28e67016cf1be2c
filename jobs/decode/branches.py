"""How the branches of a union are recognized in parsed values."""

from __future__ import annotations

from jobs.schema.wire import Wire

_PYTHON = {
    "boolean": bool,
    "int": int,
    "long": int,
    "ulong": int,
    "float": float,
    "double": float,
    "string": str,
    "bytes": bytes,
    "array": list,
    "map": dict,
    "record": dict,
    "recursive record": dict,
}

# Branches without a name; values of unions with several named types come with the type's name.
_UNNAMED = {"boolean", "int", "long", "float", "double", "string", "bytes", "array", "map"}


def branch_signs(wire: Wire) -> list[object]:
    """How a value of each branch of a union is recognized: by its name, or by its Python type."""
    named = [name for name, _ in wire.fields if name not in _UNNAMED]
    return [
        name if name in named and len(named) > 1 else _PYTHON.get(branch.kind, object) for name, branch in wire.fields
    ]
