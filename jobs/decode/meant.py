"""Converts values to text by the meaning that the record's schema gives them, for columns of type `text`.

An array of dates has numbers, one of decimals has bytes, which would be meaningless as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa

from jobs.decode.branches import branch_signs
from jobs.decode.json_values import Real
from jobs.decode.scalars import Convert, as_it_is, scalar_converter
from jobs.decode.unknown import text_of
from jobs.schema.wire import INSTANT, Wire

_EPOCH = datetime(1970, 1, 1)

Meaning = Callable[[Any], Any]


def text_converter(wire: Wire) -> Convert:
    """A function to the text of a value: text as it is, anything else as JSON; numbers with all digits, times in ISO
    format, bytes in base64."""
    meaning = meaning_of(wire)
    return text_of if meaning is None else lambda value: text_of(meaning(value))


def meaning_of(wire: Wire) -> Meaning | None:
    """A function to a value whose JSON shows its meaning; None if no conversion is needed. It may raise Refused."""
    return _meaning(wire, {})


def _meaning(wire: Wire, above: Mapping[str, list[Meaning]]) -> Meaning | None:
    """A function to a value that JSON can represent; None if no conversion is needed.

    Args:
        above: the functions of enclosing records by name, since a record may contain itself.
    """
    if wire.kind == "recursive record" and (same := above.get(wire.name)) is not None:
        return lambda value: same[0](value) if same else value
    if wire.kind == "record" and not wire.logical:
        own: list[Meaning] = []
        meaning = _record({name: _meaning(inner, {**above, wire.name: own}) for name, inner in wire.fields})
        own += [meaning] if meaning else []
        return meaning
    if wire.kind == "union":
        return _union(wire, above)
    if wire.kind in ("array", "map"):
        return {"array": _array, "map": _map}[wire.kind](_meaning(wire.items[-1], above))
    return _scalar_meaning(wire)


def _scalar_meaning(wire: Wire) -> Meaning | None:
    if wire.logical in ("decimal", "variable-decimal"):
        return _through(wire, pa.string(), Real)
    if wire.logical.startswith("time-") or wire.logical == "uuid":
        return _through(wire, pa.string(), str)
    if wire.logical in ("date", "date-parts"):
        return _through(wire, pa.date32(), lambda days: (date(1970, 1, 1) + timedelta(days=days)).isoformat())
    if wire.logical.startswith("timestamp") and wire.kind != "string":
        zone = "" if wire.local else "Z"
        return _through(wire, INSTANT, lambda us: f"{(_EPOCH + timedelta(microseconds=us)).isoformat()}{zone}")
    return None


def _through(wire: Wire, kind: pa.DataType, meaning: Meaning) -> Meaning:
    convert = scalar_converter(wire, kind, "a value in it") or as_it_is
    return lambda value: meaning(convert(value))


def _record(fields: dict[str, Meaning | None]) -> Meaning | None:
    work = {name: meaning for name, meaning in fields.items() if meaning}
    if not work:
        return None

    def meaning(value: Any) -> Any:
        changed = {name: one(value[name]) for name, one in work.items() if value.get(name) is not None}
        return {**value, **changed}

    return meaning


def _union(wire: Wire, above: Mapping[str, list[Meaning]]) -> Meaning | None:
    """The branch's meaning; none where several look alike in values."""
    signs, found = branch_signs(wire), dict[object, Meaning]()
    for (_, branch), sign in zip(wire.fields, signs, strict=True):
        if signs.count(sign) == 1 and (one := _meaning(branch, above)):
            found[sign] = one
    if not found:
        return None

    def meaning(value: Any) -> Any:
        if type(value) is not tuple:
            return found.get(type(value), as_it_is)(value)
        name, inner = value
        return name, found.get(name.rpartition(".")[2], as_it_is)(inner)

    return meaning


def _array(element: Meaning | None) -> Meaning | None:
    return element and (lambda value: [None if one is None else element(one) for one in value])


def _map(item: Meaning | None) -> Meaning | None:
    def meaning(value: Any) -> Any:
        pairs = value.items() if isinstance(value, dict) else value
        return {str(name): None if one is None or item is None else item(one) for name, one in pairs}

    return item and meaning
