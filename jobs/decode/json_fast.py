"""JSON by a declared struct, a whole Arrow batch at a time; the same answer as `json_strict`, ten times faster.

Arrow's JSON reader takes the records joined into one buffer. It knows nothing of record boundaries: ``{"a":[`` and
``{"x":1}]}`` are two broken records but one good object. So each record gets a row number as its first field, under a
name that no record can know (random per process), and the answer counts only if the rows carry exactly the numbers
0, 1, 2, …: then each record opened one object at the top level and no other object stands there, so each record is one
object. What the reader refuses, and what it would understand in another way than `json_strict` does, goes to
`json_strict`: one record where Arrow names the row, halves of the range where it does not.

Arrow is more lenient than `json_strict` in these, found by reading and by the differential test: `NaN` and `Infinity`
in fields that nobody declared, any depth, a NUL byte after the last record, years outside 1 to 9999, decimals wider
than declared, `not null`. Each is looked for here.
"""

from __future__ import annotations

import json
import re
import secrets
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from jobs.decode.base import Decoded, DecodeError
from jobs.decode.json_strict import (
    FIRST_DAY,
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
    MAX_DEPTH,
    StrictJson,
    base64_bytes,
)

_ROWS, _BYTES = 16_384, 64 << 20  # of one buffer
_SMALL = 16  # records that are not worth another call of Arrow's reader
_SAMPLES = 8
_ROW_NUMBER = "#" + secrets.token_urlsafe(8)
_BAD_ROW = re.compile(r" in row (\d+)$")
_ODD = "NaN|Inf|\x00"


class Json:
    """Decodes JSON records of a declared struct, mostly by Arrow's reader.

    Types that Arrow's reader cannot read as declared (maps; no struct at all) are decoded by `StrictJson`.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._type = kind
        self._strict = StrictJson(kind)
        self._fast = pa.types.is_struct(kind) and kind.num_fields > 0 and not _has_map(kind)

    def __reduce__(self) -> tuple[type[Json], tuple[pa.DataType]]:
        return type(self), (self._type,)

    @property
    def type(self) -> pa.DataType:
        return self._type

    def decode(self, raw: pa.Array) -> Decoded:
        if not self._fast:
            return self._strict.decode(raw)
        pieces, errors = [], {}
        for start, piece in _bounded(pc.cast(raw, pa.binary())):
            decoded = self._decode_piece(piece)
            pieces.append(decoded.values)
            errors.update({start + index: error for index, error in decoded.errors.items()})
        values = pa.concat_arrays(pieces) if pieces else pa.array([], self._type)
        return Decoded(values, errors)

    def _decode_piece(self, raw: pa.Array) -> Decoded:
        try:
            text = pc.cast(raw, pa.string())  # refuses what is no UTF-8, which Arrow's JSON reader does not
        except pa.ArrowInvalid:
            if len(raw) <= _SMALL:
                return self._strict.decode(raw)
            middle = len(raw) // 2
            return _joined(self._decode_piece(raw[:middle]), self._decode_piece(raw[middle:]))
        objects = _objects(text)
        if not pc.all(objects).as_py():
            text = pc.ascii_trim(text, " \t\r\n")
            objects = _objects(text)
        if pc.all(objects).as_py():
            return self._decode_objects(text)
        return self._decode_mixed(raw, text, objects)

    def _decode_mixed(self, raw: pa.Array, text: pa.Array, objects: pa.Array) -> Decoded:
        """Objects by Arrow, the rest (nulls, what does not look like an object) one by one, put back in order."""
        fast_at, strict_at = pc.indices_nonzero(objects), pc.indices_nonzero(pc.invert(objects))
        fast, strict = self._decode_objects(text.filter(objects)), self._strict.decode(raw.take(strict_at))
        order = pc.sort_indices(pa.concat_arrays([fast_at, strict_at]))
        errors = {fast_at[index].as_py(): error for index, error in fast.errors.items()}
        errors.update({strict_at[index].as_py(): error for index, error in strict.errors.items()})
        return Decoded(pa.concat_arrays([fast.values, strict.values]).take(order), errors)

    def _decode_objects(self, text: pa.Array) -> Decoded:
        """Records that begin with ``{`` and end with ``}``, none null."""
        count = len(text)
        if not count:
            return Decoded(pa.array([], self._type), {})
        wire = pa.schema([pa.field(_ROW_NUMBER, pa.int64()), *_wire(self._type, _samples(text))])
        lines = pc.binary_join_element_wise(
            _prefixes(count), pc.binary_slice(pc.cast(text, pa.binary()), 1, 2**31 - 1), pa.scalar(b"", pa.binary())
        )
        pieces: list[pa.Array] = []
        errors: dict[int, DecodeError] = {}
        failures, ranges = 0, [(0, count)]
        while ranges:
            start, stop = ranges.pop()
            if start == stop:
                continue
            # A limit, so that a batch of nothing but bad records costs little more than by the strict way alone.
            if stop - start <= _SMALL or failures > _SMALL + count // 32:
                strict = self._strict.decode(pc.cast(text[start:stop], pa.binary()))
                pieces.append(strict.values)
                errors.update({start + index: error for index, error in strict.errors.items()})
                continue
            try:
                pieces.append(self._read(lines, start, stop, wire))
            except pa.ArrowInvalid as refused:
                failures += 1
                ranges += _parts(start, stop, str(refused))
        return Decoded(pa.concat_arrays(pieces), errors)

    def _read(self, lines: pa.Array, start: int, stop: int, wire: pa.Schema) -> pa.Array:
        """The values of a range of lines; ArrowInvalid when Arrow's answer is not the strict one."""
        buffer = _buffer(lines, start, stop)
        table = pj.read_json(
            pa.BufferReader(buffer),
            read_options=pj.ReadOptions(use_threads=False, block_size=buffer.size + 1),
            parse_options=pj.ParseOptions(explicit_schema=wire, unexpected_field_behavior="ignore"),
        ).combine_chunks()
        rows = table.column(0)
        if not rows.num_chunks or not rows.chunk(0).equals(_numbers(stop)[start:]):
            raise pa.ArrowInvalid("records and objects differ")
        columns = [_one_chunk(table.column(i)) for i in range(1, table.num_columns)]
        _require(self._type, [column.null_count for column in columns])
        fields = list(self._type)
        return pa.StructArray.from_arrays(
            [_declared(column, field.type) for column, field in zip(columns, fields, strict=True)], fields=fields
        )


def _bounded(raw: pa.Array) -> list[tuple[int, pa.Array]]:
    """Slices of at most so many rows and bytes (a longer record stands alone), each with its start."""
    slices, todo = [], [(0, len(raw))]
    while todo:
        start, count = todo.pop()
        piece = raw[start : start + count]
        if count > 1 and (count > _ROWS or piece.nbytes > _BYTES):
            half = _ROWS if count > _ROWS else count // 2
            todo += [(start + half, count - half), (start, half)]
        else:
            slices.append((start, piece))
    return slices


def _joined(left: Decoded, right: Decoded) -> Decoded:
    shifted = {len(left.values) + index: error for index, error in right.errors.items()}
    return Decoded(pa.concat_arrays([left.values, right.values]), {**left.errors, **shifted})


def _objects(text: pa.Array) -> pa.Array:
    """True where a record may be given to Arrow: `{…}`, not (nearly) empty, not deep, nothing it is lenient about."""
    # Five characters: `{}` and a comma after the row number would be a trailing comma.
    good = pc.and_(pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}")), pc.greater_equal(_length(text), 5))
    if (pc.max(_length(text)).as_py() or 0) > 2 * MAX_DEPTH:
        brackets = pc.add(pc.count_substring(text, "["), pc.count_substring(text, "{"))
        good = pc.and_(good, pc.less_equal(brackets, MAX_DEPTH))
    data = _bytes(text)
    if b"NaN" in data or b"Inf" in data or b"\x00" in data:
        good = pc.and_(good, pc.invert(pc.match_substring_regex(text, _ODD)))
    return pc.fill_null(good, False)


def _length(text: pa.Array) -> pa.Array:
    return pc.binary_length(text)


def _offsets(array: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), array.offset + len(array) + 1, [None, array.buffers()[1]])[array.offset :]


def _buffer(array: pa.Array, start: int, stop: int) -> pa.Buffer:
    offsets = _offsets(array)
    first, last = offsets[start].as_py(), offsets[stop].as_py()
    return array.buffers()[2].slice(first, last - first)


def _bytes(text: pa.Array) -> bytes:
    return b"" if text.buffers()[2] is None else _buffer(text, 0, len(text)).to_pybytes()


def _prefixes(count: int) -> pa.Array:
    return _all_prefixes(1 << count.bit_length())[:count]


def _numbers(count: int) -> pa.Array:
    return _all_numbers(1 << count.bit_length())[:count]


@lru_cache(4)
def _all_prefixes(count: int) -> pa.Array:
    return pa.array([f'\n{{"{_ROW_NUMBER}":{row},'.encode() for row in range(count)], pa.binary())


@lru_cache(4)
def _all_numbers(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def _parts(start: int, stop: int, message: str) -> list[tuple[int, int]]:
    """What to read instead of a refused range, last one first: around the bad row, or halves."""
    match = _BAD_ROW.search(message)
    bad = start + int(match[1]) if match else stop
    if bad < stop:
        return [(bad + 1, stop), (bad, bad + 1), (start, bad)]
    middle = (start + stop) // 2
    return [(middle, stop), (start, middle)]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_has_map(kind.field(i).type) for i in range(kind.num_fields))


def _samples(text: pa.Array) -> list[Any]:
    """Some parsed records, to see whether times come as strings or as numbers."""
    samples = []
    for index in range(0, len(text), max(1, len(text) // _SAMPLES)):
        try:
            samples.append(json.loads(text[index].as_py()))
        except (ValueError, RecursionError):
            continue
    return samples


def _wire(kind: pa.StructType, samples: list[Any]) -> list[pa.Field]:
    """The fields to read by Arrow: as declared, but times as strings or numbers, whichever the samples have."""
    records = [sample for sample in samples if isinstance(sample, dict)]
    return [pa.field(f.name, _wire_type(f.type, [record.get(f.name) for record in records])) for f in kind]


def _wire_type(kind: pa.DataType, samples: list[Any]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(_wire(kind, samples))
    if pa.types.is_list(kind):
        inner = [item for sample in samples if isinstance(sample, list) for item in sample]
        return pa.list_(pa.field("element", _wire_type(kind.value_type, inner)))
    if pa.types.is_temporal(kind):
        return pa.int64() if any(isinstance(sample, int) for sample in samples) else pa.string()
    if pa.types.is_binary(kind):
        return pa.string()
    # Rounded to float once, from double, as the strict decoder does.
    return pa.float64() if pa.types.is_float32(kind) else kind


def _require(kind: pa.StructType, nulls: list[int]) -> None:
    if any(count and not field.nullable for count, field in zip(nulls, kind, strict=True)):
        raise pa.ArrowInvalid("null in a column that is not null")


def _declared(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as read by Arrow in the declared type; ArrowInvalid when the strict decoder might say otherwise."""
    if pa.types.is_struct(kind):
        return _declared_struct(values, kind)
    if pa.types.is_list(kind):
        return _declared_list(values, kind)
    if pa.types.is_temporal(kind):
        return _declared_time(values, kind)
    if pa.types.is_binary(kind):
        return _declared_binary(values)
    if pa.types.is_float32(kind):
        return _finite(pc.cast(_finite(values), kind))
    if pa.types.is_float64(kind):
        return _finite(values)
    if pa.types.is_decimal128(kind):
        values.validate(full=True)  # Arrow's reader checks the precision before it rescales
    return values


def _declared_struct(values: pa.Array, kind: pa.StructType) -> pa.Array:
    children = values.flatten()  # a child is null where its parent is
    _require(kind, [child.null_count - values.null_count for child in children])
    fields = list(kind)
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(
        [_declared(child, field.type) for child, field in zip(children, fields, strict=True)], fields=fields, mask=mask
    )


def _declared_list(values: pa.Array, kind: pa.ListType) -> pa.Array:
    if not kind.value_field.nullable and values.flatten().null_count:
        raise pa.ArrowInvalid("null in an array whose elements are not null")
    mask = values.is_null() if values.null_count else None
    return pa.ListArray.from_arrays(values.offsets, _declared(values.values, kind.value_type), type=kind, mask=mask)


def _declared_time(values: pa.Array, kind: pa.DataType) -> pa.Array:
    is_date = pa.types.is_date(kind)
    low, high = (FIRST_DAY, LAST_DAY) if is_date else (FIRST_MICROSECOND, LAST_MICROSECOND)
    if pa.types.is_string(values.type):
        # Shorter ones Arrow reads without minutes, which the strict decoder refuses.
        if not is_date and (pc.min(pc.binary_length(values)).as_py() or 20) < (20 if kind.tz else 16):
            raise pa.ArrowInvalid("a short time")
        ticks = pc.cast(pc.cast(values, kind), pa.int32() if is_date else pa.int64())
    else:
        ticks = values if is_date else pc.multiply_checked(values, 1000)
    _within(ticks, low, high)
    return pc.cast(pc.cast(ticks, pa.int32() if is_date else pa.int64()), kind)


def _declared_binary(values: pa.Array) -> pa.Array:
    try:
        return pa.array([None if v is None else base64_bytes(v) for v in values.to_pylist()], pa.binary())
    except ValueError:
        raise pa.ArrowInvalid("no base64") from None


def _finite(values: pa.Array) -> pa.Array:
    if pc.any(pc.is_inf(values)).as_py() or pc.any(pc.is_nan(values)).as_py():
        raise pa.ArrowInvalid("a number too large")
    return values


def _within(values: pa.Array, low: int, high: int) -> None:
    found = pc.min_max(values).as_py()
    if found["min"] is not None and not (low <= found["min"] and found["max"] <= high):
        raise pa.ArrowInvalid("a time outside years 1 to 9999")
