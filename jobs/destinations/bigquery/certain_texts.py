"""Texts that BigQuery is certain to convert, so that it need not be asked about them. Pure.

Plain forms only: days from the year 1000 on, times with at most six digits after the point, numbers that no type
rounds. BigQuery may be able to convert other texts as well.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_MONTHS = r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
_LEAP_DAYS = r"(?:0[48]|[2468][048]|[13579][26])-02-29"
# A day after the first digit of its year.
_IN_IT = rf"\d(?:\d\d-{_MONTHS}|{_LEAP_DAYS})"
_DAY = rf"[1-9]{_IN_IT}"
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_OFFSET = r"(?:0\d|1[0-3]):[0-5]\d"
_FORMS = {
    "DATE": _DAY,
    "TIME": _CLOCK,
    "DATETIME": f"{_DAY}[ T]{_CLOCK}",
    # West of UTC the last hours of 9999 are in the year 10000 in UTC, which BigQuery does not have.
    "TIMESTAMP": rf"{_DAY}[ T]{_CLOCK}(?:Z| UTC|\+{_OFFSET})?|[1-8]{_IN_IT}[ T]{_CLOCK}-{_OFFSET}",
    "NUMERIC": r"-?\d{1,28}(?:\.\d{1,9})?",
    # BigQuery has 38 digits before the point, the emulator 20.
    "BIGNUMERIC": r"-?\d{1,19}(?:\.\d{1,38})?",
}


def without_certain(texts: pa.Array, kind: str) -> pa.Array:
    """The texts that BigQuery has to be asked about before it converts them to this type."""
    if kind not in _FORMS:
        return texts
    return texts.filter(pc.invert(pc.match_substring_regex(texts, f"^(?:{_FORMS[kind]})$")))
