"""Texts that are no JSON for BigQuery, so that one of them does not stop the whole merge. Pure.

JSON may be long, so BigQuery is not asked as it is of other texts (`unreadable_texts`): what `PARSE_JSON` takes is JSON
as its standard has it, nested at most 500 deep (vendor page "Working with JSON data"). Its numbers are whole ones of 64
bits, with or without sign, else those of FLOAT64. The merge lets BigQuery round to these, so that none stops it; here
those are refused that would then be other numbers.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from jobs.destinations.limits import Mask

_DEEPEST = 500
# With which C, Java and others write a double; Python writes as few as distinguish it.
_DIGITS = 17


def not_json(values: pa.Array) -> Mask:
    """Which texts are not JSON; a null is not a text."""
    return np.array([text is not None and not _is_json(text) for text in values.to_pylist()], dtype=bool)


def _is_json(text: str) -> bool:
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_number, parse_int=_whole)
        if "\\u" in text:
            # A lone surrogate is not a character.
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, InvalidOperation, RecursionError):
        return False
    return text.count("[") + text.count("{") <= _DEEPEST or _depth(found) <= _DEEPEST


def _whole(text: str) -> float:
    found = int(text)
    return found if -(2**63) <= found < 2**64 else _number(text)


def _number(text: str) -> float:
    found = float(text)
    if repr(found) == text:  # as most write it
        return found
    written = Decimal(text)
    digits = "".join(map(str, written.as_tuple().digits)).strip("0")
    exact = len(digits) <= _DIGITS or Decimal(repr(found)) == written
    return found if math.isfinite(found) and bool(found) == bool(digits) and exact else _refuse(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _depth(value: Any) -> int:
    level, deep = [value], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        level, deep = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)], deep + 1
    return deep
