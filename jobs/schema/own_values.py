"""Values of the types that tables have for text and bytes of one form (`types.own_type`), and the text of these. Pure.

Rows are landed and reduced as text and bytes. Spark converts them itself when it writes and reads a table; files that
our own tasks write and read are converted here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.schema.leaves import with_leaves
from jobs.schema.types import holds, is_own, landed_type

# The text of a UUID, in any case.
UUID_TEXT = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
# Where the hexadecimal digits of a UUID are in its text: start and end of the digits, start in the text.
_GROUPS = ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24))


def as_in_table(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Landed values with a table's own types where `wanted` has them, nested ones too; all else as it is.

    Raises:
        ArrowInvalid: a value is not of the form.
    """
    return with_leaves(values, pa.field("", wanted), _own) if holds(wanted, is_own) else values


def as_landed(values: pa.Array) -> pa.Array:
    """A table's values as they are landed."""
    return (
        with_leaves(values, pa.field("", landed_type(values.type)), _landed) if holds(values.type, is_own) else values
    )


def stored(values: pa.Array) -> pa.Array:
    """The values without an extension type: Arrow computes with few."""
    return values.cast(values.type.storage_type) if isinstance(values.type, pa.BaseExtensionType) else values


def stored_type(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def uuid_texts(values: pa.Array) -> pa.Array:
    """The texts, in lower case, of UUIDs in 16 bytes each."""
    given = (values.fill_null(bytes(16)) if values.null_count else values).cast(pa.binary(16))
    raw = np.frombuffer(given.buffers()[1], np.uint8)[16 * given.offset :][: 16 * len(values)]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    hexadecimal = np.stack([digits[raw >> 4], digits[raw & 15]], axis=1).reshape(-1, 32)
    text = np.full((len(values), 36), ord("-"), np.uint8)
    for start, end, to in _GROUPS:
        text[:, to : to + end - start] = hexadecimal[:, start:end]
    offsets = np.arange(0, 36 * len(values) + 1, 36, dtype=np.int32)
    found = pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.string())) if values.null_count else found


def time_texts(values: pa.Array) -> pa.Array:
    """Times of day as ``HH:MM:SS``, with six digits after a point if they are not all zero."""
    return pc.replace_substring_regex(values.cast(pa.string()), r"\.000000$", "")


def times(texts: pa.Array) -> pa.Array:
    """Times of day of such texts; raises ArrowInvalid for any other text. Arrow reads them only behind a date."""
    moments = pc.binary_join_element_wise("1970-01-01 ", texts, "").cast(pa.timestamp("us"))
    return moments.cast(pa.int64()).cast(pa.time64("us"))


def _uuids(texts: pa.Array) -> pa.Array:
    """UUIDs in 16 bytes each; raises ArrowInvalid for any other text."""
    if not pc.all(pc.match_substring_regex(texts, f"^{UUID_TEXT}$"), min_count=0).as_py():
        raise pa.ArrowInvalid("a text that is no uuid")
    given = texts.fill_null("0" * 8 + "-0000" * 3 + "-" + "0" * 12) if texts.null_count else texts
    if not len(given):
        return pa.nulls(0, pa.binary(16))
    # All have 36 characters, one after the other.
    start = np.frombuffer(given.buffers()[1], np.int32)[given.offset]
    text = np.frombuffer(given.buffers()[2], np.uint8)[start:][: 36 * len(given)]
    signs = np.delete(text.reshape(-1, 36), (8, 13, 18, 23), axis=1).astype(np.uint8)
    # The digits 0 to 9 are 0x30 to 0x39; the letters a to f are 0x61 to 0x66, in upper case 0x41 to 0x46.
    numbers = (signs & 15) + np.where(signs > ord("9"), 9, 0).astype(np.uint8)
    raw = np.ascontiguousarray(numbers[:, 0::2] << 4 | numbers[:, 1::2])
    found = pa.Array.from_buffers(pa.binary(16), len(texts), [None, pa.py_buffer(raw)])
    return pc.if_else(texts.is_valid(), found, pa.scalar(None, pa.binary(16))) if texts.null_count else found


def _own(values: pa.Array, field: pa.Field, _path: str) -> pa.Array:
    wanted = field.type
    if values.type == wanted or not is_own(wanted):
        return values
    # Not in Arrow's variants of 64 bits.
    landed = values.cast(landed_type(wanted))
    if pa.types.is_time(wanted):
        return times(landed)
    return _uuids(landed).cast(wanted) if wanted == pa.uuid() else landed.cast(wanted)


def _landed(values: pa.Array, _field: pa.Field, _path: str) -> pa.Array:
    if values.type == pa.uuid():
        return uuid_texts(stored(values))
    if pa.types.is_time(values.type):
        return time_texts(values)
    return values.cast(pa.binary()) if pa.types.is_fixed_size_binary(values.type) else values
