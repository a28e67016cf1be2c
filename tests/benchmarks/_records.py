"""The records that benchmarks read: built in columns, so that a log of millions takes seconds.

JSON objects of about 115 bytes: few and many values, text beyond ASCII, nulls. The same id has always the same record
but for `turn`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = {"id": "long", "carrier": "string", "origin": "string", "note": "string", "delay": "long", "dist": "double"}
_CARRIERS = pa.array(["UA", "B6", "AA", "DL", "LH", "AF", "ЮТ", "全日空"])
_CITIES = pa.array(
    [f"{city} {n}" for n in range(50) for city in ("Zürich", "New York", "São Paulo", "東京", "Łódź", "Oslo")]
)


def rows(ids: Iterable[int], turn: int = 0) -> pa.Table:
    """A row for each id, with the columns in the order of `COLUMNS`; a turn gives other values."""
    known = numbers(ids)
    # Odd multipliers spread neighbouring ids over all 64 bits.
    spread = ((known.astype(np.uint64) + np.uint64(turn)) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(8)
    places = spread.astype(np.int64)
    return pa.table(
        {
            "id": known,
            "carrier": _CARRIERS.take(pa.array((places >> 20) % 8)),
            "origin": _CITIES.take(pa.array((places >> 24) % 300)),
            "note": pc.if_else(
                places % 10 == 0, None, pc.binary_join_element_wise("booking", pc.cast(places, "string"), " ")
            ),
            "delay": pa.array((places >> 30) % 997 - 100, mask=places % 16 == 1),
            "dist": (places >> 16) % 99_990 / 10,
        }
    )


def as_json(found: pa.Table) -> list[bytes]:
    """Of each row its object; a null is written."""
    parts: list[Any] = ["{"]
    for name in found.column_names:
        text = found[name].cast(pa.string())
        if COLUMNS[name] == "string":
            text = pc.binary_join_element_wise('"', text, '"', "")
        parts += [f'{"," if len(parts) > 1 else ""}"{name}":', pc.fill_null(text, "null")]
    joined = pc.binary_join_element_wise(*parts, "}", "")
    made: list[bytes] = joined.cast(pa.binary()).to_pylist()
    return made


def numbers(ids: Iterable[int]) -> np.ndarray[Any, Any]:
    return ids if isinstance(ids, np.ndarray) else np.fromiter(ids, np.int64)
