"""Decoders that read many records in step, compared with themselves one record at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from jobs.decode.of_schema import SchemaDecoder
from jobs.decode.parts import SMALL


def assert_same(decoder: SchemaDecoder, records: Sequence[bytes | None], times: int = 0) -> int:
    """The same values, errors and fields that no column takes, both ways.

    Args:
        times: how often each record stands in the array; 0: as often as it takes.

    Returns:
        How many of the records were read in step.
    """
    times = times or SMALL // max(1, len(records)) + 2
    raw = pa.array(list(records) * times, pa.binary())
    together, alone = decoder.decode(raw), decoder.decode_each(raw)
    assert together.errors == alone.errors
    assert together.values.type == decoder.type
    together.values.validate(full=True)
    # By text: equality of arrays does not tell -0.0 from 0.0, and takes NaN for unequal to itself.
    assert shown(together.values) == shown(alone.values)
    assert together.unknown == alone.unknown, (together.unknown, alone.unknown)
    return sum(len(part.rows) for part in decoder.bulk_parts(raw)) // times


def shown(values: pa.Array) -> list[str]:
    return [repr(_sorted(value)) for value in values.to_pylist()]


def _sorted(value: Any) -> Any:
    """With the entries of maps, which have no order, in one."""
    if isinstance(value, dict):
        return {name: _sorted(inner) for name, inner in value.items()}
    if isinstance(value, list):
        items = [_sorted(inner) for inner in value]
        return sorted(items, key=repr) if value and type(value[0]) is tuple else items
    return tuple(map(_sorted, value)) if type(value) is tuple else value
