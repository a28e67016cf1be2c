"""`google.protobuf.Struct`, `Value` and `ListValue` as JSON text."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(value: Any) -> str:
    """Integers without a fraction; NaN and the infinities, which JSON lacks, as text."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    match value.DESCRIPTOR.name:
        case "Struct":
            return {name: _plain(inner) for name, inner in value.fields.items()}
        case "ListValue":
            return [_plain(inner) for inner in value.values]
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        return _number(value.number_value)
    if kind in ("struct_value", "list_value"):
        return _plain(getattr(value, kind))
    return None if kind in (None, "null_value") else getattr(value, kind)


def _number(value: float) -> float | int | str:
    if not math.isfinite(value):
        return json.dumps(value)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
