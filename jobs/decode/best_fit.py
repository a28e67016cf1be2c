"""`convert: best_fit`: reads a value of another type than the declared one where it says the same.

As the sinks of Kafka Connect do ("best fit": Iceberg sink, Schema evolution), but without loss: nothing is rounded or
cut, and a value that says nothing of the declared type is refused as ever.

=====================  ===============================================================
declared               accepted too
=====================  ===============================================================
``int`` to ``double``  a string that is a number, as the number
``boolean``            ``"true"`` and ``"false"`` in any case; ``1`` and ``0``
``string``             any other value, as JSON; times in ISO format, bytes in base64
``timestamp``          a date ``"YYYY-MM-DD"``: its midnight, for ``timestamp`` in UTC
=====================  ===============================================================
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.json_dialect import is_best_fit
from jobs.decode.json_values import NUMERIC, Convert, Integer, Real, scalar_converter
from jobs.decode.meant import text_converter
from jobs.decode.times import DATE
from jobs.decode.unknown import text_of
from jobs.schema.types import form_of
from jobs.schema.wire import Wire

_BOOLEANS = {"true": True, "false": False}
_WHOLE = r"^-?\d{1,18}$"
_ANY_NUMBER = r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$"


def of_json(field: pa.Field, convert: Convert) -> Convert:
    """The conversion of a parsed JSON value, or of text: `convert`, behind what best fit accepts besides."""
    fitted = _fitted(field.type) if is_best_fit(field) and not form_of(field) else None
    return convert if fitted is None else lambda value: convert(fitted(value))


def of_wire(wire: Wire, field: pa.Field, where: str) -> Convert | None:
    """The conversion of a value whose schema names another type; None: best fit does not read it."""
    if not is_best_fit(field) or form_of(field):
        return None
    if pa.types.is_string(field.type):
        text = text_converter(wire)
        return lambda value: b64encode(value).decode() if type(value) is bytes else text(value)
    if wire.logical or wire.bytes_as:
        return None
    if wire.kind == "string" and _fitted(field.type):
        return of_json(field, scalar_converter(field.type, where))
    if wire.kind in ("int", "long") and pa.types.is_boolean(field.type):
        boolean = of_json(field, scalar_converter(field.type, where))
        return lambda value: boolean(Integer(value))
    return None


def in_text(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers or booleans that were read as text, whole columns at a time; raises ArrowInvalid for any other text."""
    if pa.types.is_boolean(kind):
        lower = pc.utf8_lower(values)
        _check(pc.is_in(lower, pa.array(list(_BOOLEANS))), values)
        return pc.equal(lower, "true")
    whole = pa.types.is_integer(kind)
    _check(pc.match_substring_regex(values, _WHOLE if whole else _ANY_NUMBER), values)
    return values.cast(pa.int64()).cast(kind) if whole else values.cast(pa.float64())


def _check(good: pa.Array, values: pa.Array) -> None:
    if not pc.all(pc.or_(pc.fill_null(good, False), values.is_null())).as_py():
        raise pa.ArrowInvalid("a string of another kind")


def _fitted(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """A function to the value that the declared type accepts, or to the same value; None: there is none to fit."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _number
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_timestamp(kind):
        return _midnight
    return text_of if pa.types.is_string(kind) else None


def _number(value: Any) -> Any:
    if type(value) is not str or not NUMERIC.fullmatch(value):
        return value
    return Integer(value) if value.lstrip("+-").isdecimal() else Real(value)


def _boolean(value: Any) -> Any:
    if type(value) is str:
        return _BOOLEANS.get(value.lower(), value)
    return value == "1" if type(value) is Integer and value in ("0", "1") else value


def _midnight(value: Any) -> Any:
    return f"{value}T00:00:00" if type(value) is str and DATE.fullmatch(value) else value
