"""Texts that BigQuery converts to the type of a column (`column_types`). Pure.

A text that it cannot convert would stop the whole merge, so texts are judged before they are sent. The forms are those
of BigQuery's reference ("Conversion functions", canonical formats of "Data types", `PARSE_JSON`). What a GEOGRAPHY may
be is too wide to be decided here: BigQuery is asked (`geographies.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import NoReturn

import numpy as np
import pyarrow as pa

from jobs.destinations.held_values import Mask

_DATE = r"(\d{1,4})-(\d{1,2})-(\d{1,2})"
_TIME = r"([01]?\d|2[0-4]):[0-5]?\d:([0-5]?\d|60)(\.\d*)?"
_ZONE = r"( ?(Z|z|UTC|[+-]\d{1,2}(:?\d{2})?| [A-Za-z_]+(/[A-Za-z_+\-0-9]+)*))?"
_TIME_FORM = re.compile(_TIME)


def unreadable(conversion: str | None) -> Callable[[pa.Array], Mask] | None:
    """Finds the values of a column that BigQuery cannot convert (`columns.Column.conversion`); None: it takes all, or
    has to be asked (`is_asked`)."""
    return _UNREADABLE.get(conversion or "")


def is_asked(conversion: str | None) -> bool:
    """Whether only BigQuery can tell what it converts."""
    return conversion == "string_to_GEOGRAPHY"


@dataclass(frozen=True)
class _Unreadable:
    """Which values are no text of a type; travels to workers."""

    reads: Callable[[str], bool]

    def __call__(self, values: pa.Array) -> Mask:
        return np.array([text is not None and not self.reads(text) for text in values.to_pylist()], dtype=bool)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _is_time(text: str) -> bool:
    return _TIME_FORM.fullmatch(text.strip()) is not None


def _is_at(form: re.Pattern[str], text: str) -> bool:
    found = form.fullmatch(text.strip())
    try:
        return found is not None and bool(date(int(found[1]), int(found[2]), int(found[3])))
    except ValueError:
        return False


def _is_number(below: Decimal, text: str) -> bool:
    try:
        found = Decimal(text.strip()) if "_" not in text else Decimal("NaN")
    except InvalidOperation:
        return False
    return found.is_finite() and found.copy_abs() < below


_UNREADABLE: Mapping[str, _Unreadable] = {
    "string_to_JSON": _Unreadable(_is_json),
    "string_to_DATE": _Unreadable(partial(_is_at, re.compile(_DATE))),
    "string_to_TIME": _Unreadable(_is_time),
    "string_to_DATETIME": _Unreadable(partial(_is_at, re.compile(rf"{_DATE}([ Tt]{_TIME})?"))),
    "string_to_TIMESTAMP": _Unreadable(partial(_is_at, re.compile(rf"{_DATE}([ Tt]{_TIME})?{_ZONE}"))),
    "string_to_NUMERIC": _Unreadable(partial(_is_number, Decimal("1e29"))),
    "string_to_BIGNUMERIC": _Unreadable(partial(_is_number, Decimal("5.7896044618658097711785492504343953926e38"))),
}
