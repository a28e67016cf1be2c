"""Converts decimals, whole columns at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.columns.cursors import Ints, value_bounds

MOST_SCALE = 38


def fitting(values: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """Decimals or integers in a decimal type; raises ArrowInvalid if one does not fit."""
    # Through 256 bits: 128 may wrap around when Arrow multiplies to a larger scale, which it does not always notice.
    return values.cast(pa.decimal256(2 * MOST_SCALE, kind.scale)).cast(kind)


def of_texts(texts: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """The numbers of these texts in a decimal type; raises ArrowInvalid for texts with an exponent or more digits."""
    # Arrow reads a text of too many digits as another number, and crashes at a large exponent.
    digits = rf"\d{{0,{kind.precision - kind.scale}}}(\.\d{{0,{kind.scale}}}0{{0,{MOST_SCALE - kind.precision}}})?"
    if not pc.all(pc.match_substring_regex(texts, rf"^[+-]?{digits}$"), min_count=0).as_py():
        raise pa.ArrowInvalid("a number that may not fit")
    return texts.cast(kind)


def unscaled(raw: pa.Array, scale: int) -> pa.Array:
    """The decimals of this scale (up to 38) from unscaled big-endian two's complement; raises ArrowInvalid."""
    kind = pa.decimal128(MOST_SCALE, scale)
    lengths = pc.binary_length(raw).fill_null(0).to_numpy().astype(np.int64)
    widest = int(lengths.max(initial=0))
    if widest > 16:
        raise pa.ArrowInvalid("a decimal of more than 16 bytes")
    found = pa.Array.from_buffers(kind, len(raw), [None, pa.py_buffer(_little(raw, lengths, widest))])
    found.validate(full=True)
    return pc.if_else(raw.is_valid(), found, pa.scalar(None, kind)) if raw.null_count else found


def _little(raw: pa.Array, lengths: Ints, widest: int) -> npt.NDArray[np.uint8]:
    """Sixteen bytes, little-endian, for each big-endian number of at most `widest` bytes."""
    found = np.zeros((len(raw), 16), np.uint8)
    bounds, data = value_bounds(raw)
    if not widest or data is None:
        return found
    ends = bounds[1:]
    held = np.frombuffer(data, np.uint8)
    last = np.maximum(ends - 1, 0)
    sign = np.where((lengths > 0) & (held[np.maximum(ends - lengths, 0).clip(max=len(held) - 1)] >= 0x80), 0xFF, 0)
    for place in range(widest):
        found[:, place] = np.where(place < lengths, held[np.maximum(last - place, 0)], sign)
    found[:, widest:] = sign.astype(np.uint8)[:, None]
    return found
