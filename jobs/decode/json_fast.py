"""Decodes JSON to a declared struct, a whole Arrow batch at a time: `json_strict`'s results, several times faster.

Arrow's JSON reader gets the records joined into one buffer. It does not know record boundaries: ``{"a":[1`` and
``,{"x":1}]}`` are two broken records but one good object; ``{}{}`` is one broken record but two good objects. Its
result is still right if each record begins with ``{`` and ends with ``}``, a newline separates them, and the number of
objects is the number of records. Reason: at each ``}``, newline, ``{`` the reader cannot be inside a string (which
contains no newline), nor inside an array or object (where a comma or a closing bracket must follow the ``}``): so each
record is one or more whole objects, and by the count exactly one. Records that the reader refuses, or would read
differently than `json_strict`, go to `json_strict`, with as few others as the reader's message allows.

Arrow is more lenient than `json_strict` about these, found by reading its code and by the differential test: `NaN` and
`Infinity` in undeclared fields, bytes that are not UTF-8, any depth, a NUL byte at the end. And it crashes at a decimal
with very many digits after the point, such as `1e-99999999`. This module checks for them; for cases that depend on the
column's type see `json_wire`.
"""

from __future__ import annotations

import json
import re
from functools import reduce
from itertools import dropwhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from jobs.decode.base import Decoded
from jobs.decode.columns.arrays import arrow
from jobs.decode.columns.cursors import texts, value_bounds
from jobs.decode.json_strict import MAX_DEPTH, StrictJson
from jobs.decode.json_unexpected import found_fields, records_with, unexpected
from jobs.decode.json_wire import OneByOne, declared_columns, is_declared, numbers_alone, wire_fields, with_points
from jobs.decode.parts import SMALL as _SMALL
from jobs.decode.parts import Part, joined, judged, pieces
from jobs.decode.unknown import Watch
from jobs.schema.found_fields import NOTHING_FOUND, FoundFields
from jobs.schema.types import has_map, holds
from jobs.schema.with_fields import with_fields

_CHUNK = 512  # records of one call if the message does not tell which are bad
_SAMPLES = 8
# Where a value begins; a text may have such a place too, and is then decoded one by one in vain.
_LENIENT = r"[:,\[][ \t\r\n]*-?(NaN|Inf)|\x00"
# Arrow reads up to 38 digits after zeros, so a decimal of a text without these, escaped or not, has at most 76 digits.
_MANY_DIGITS = r"[eE]-(\d{3}|[2-9]\d)|\.0{20}|\\u00(2[dDeE]|3\d|[46]5)"
_BAD_ROW = re.compile(r" in row (\d+)$")
_OTHER_TYPE = re.compile(r"^JSON parse error: Column\(/(.*)\) changed from \w+ to (\w+) in row \d+$")
_NOT_WHOLE = "Failed to convert JSON to int"
_BEGINS = {"string": '"', "number": "[-0-9]", "boolean": "[tf]", "array": r"\[", "object": r"\{"}


# Numbers of records, and the types that Arrow reads them with.
Group = tuple[pa.Array, pa.Schema]


class ArrowJson:
    """Reads objects with Arrow's JSON reader, if its result is that of `json_strict`."""

    def __init__(self, kind: pa.StructType, watch: Watch | None = None) -> None:
        """Args:
        kind: without maps.
        """
        self.type, self._watch = kind, watch
        self._read_type = watch.without_column(kind) if watch else kind
        self._has_decimal = holds(self._read_type, pa.types.is_decimal)

    def parts(self, raw: pa.Array) -> list[Part]:
        """Those of these records (binary) that Arrow can read, with their fields that have no column."""
        text, objects = _candidates(raw, self._has_decimal)
        rows = arrow(np.arange(len(raw))).filter(objects)
        if not len(rows):
            return []
        found: list[Part] = []
        todo, failures = [self._with_wire(text, rows)], 0
        while todo:
            rows, wire = todo.pop()
            # The limit: a batch of only bad records must not cost much more than strict decoding alone.
            if len(rows) <= _SMALL or failures > 16 + len(text) // 128:
                continue
            try:
                values, bad, unknown = self._read(text if len(rows) == len(text) else text.take(rows), wire)
            except OneByOne as some:
                failures += 1
                todo.append((rows.filter(pc.invert(some.records)), wire))
                continue
            except pa.ArrowInvalid as refused:
                failures += 1
                todo += self._divided(text, rows, wire, str(refused), failures)
                continue
            if bad is not None:
                good = pc.invert(bad)
                rows, values = rows.filter(good), values.filter(good)
            found.append(Part(rows.to_numpy(), values, unknown))
        return found

    def _with_wire(self, text: pa.Array, rows: pa.Array) -> Group:
        """These records with the types to read them with, by some of them; without records that these would misread."""
        wire = pa.schema(wire_fields(self._read_type, _samples(text, rows)))
        for name in numbers_alone(self._read_type, wire):
            rows = _without(text, rows, _text_of(name))
        return rows, wire

    def _divided(self, text: pa.Array, rows: pa.Array, wire: pa.Schema, message: str, failures: int) -> list[Group]:
        """Groups of the records that Arrow refused, to be tried again; its message is only a hint for the division."""
        if message.startswith(_NOT_WHOLE) and (numbers := with_points(wire)) != wire:
            return [(_without(text, rows, _MANY_DIGITS), numbers)]
        chunk = len(rows) <= 2 * _CHUNK
        other_type = _OTHER_TYPE.match(message)
        if other_type and other_type[2] in _BEGINS:
            path = other_type[1].split("/")
            suspects = pc.match_substring_regex(text.take(rows), _begins(path, other_type[2]))
            rest, others = (rows.filter(pc.invert(suspects)), wire), self._with_wire(text, rows.filter(suspects))
            # Each group by itself is all right: a field without a column may have any type, some columns several.
            if len(rest[0]) and len(others[0]) and (others[1] != wire or not is_declared(self._read_type, path)):
                return [rest, others]
            if 0 < len(others[0]) <= len(rows) // 4 and (chunk or failures <= 4):
                return [rest]
        if not chunk:  # a call allocates memory for all records, so many bad ones are found faster in short ranges
            return [(rows[at : at + _CHUNK], wire) for at in range(0, len(rows), _CHUNK)]
        row = _BAD_ROW.search(message)
        bad = int(row[1]) if row else len(rows)
        return [(rows[:bad], wire), (rows[bad + 1 :], wire)] if bad < len(rows) else []

    def _read(self, text: pa.Array, wire: pa.Schema) -> tuple[pa.Array, pa.Array | None, FoundFields]:
        """The values of these records, a mask of those to decode one by one (None: there are none), and other fields.

        One by one: records that lack a `not null` column, and those with fields without a column, unless these are
        only reported.

        Raises ArrowInvalid if Arrow refuses, or if its result might differ from the strict one.
        """
        one_list = pa.ListArray.from_arrays(pa.array([0, len(text)], pa.int32()), text)
        lines = pc.binary_join(one_list, "\n")[0].as_buffer()
        table = pj.read_json(
            pa.BufferReader(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=wire, unexpected_field_behavior="infer" if self._watch else "ignore"
            ),
        )
        if table.num_rows != len(text):
            raise pa.ArrowInvalid("records and objects differ")
        columns = [column.combine_chunks() for column in table.columns[: len(wire)]]
        values, lacking = declared_columns(columns, self._read_type)
        if self._watch is None:
            return values, lacking, NOTHING_FOUND
        found = unexpected(table, pa.struct(list(wire)), self._watch)
        values = with_fields(values, self.type)
        if self._watch.then == "report":
            having = records_with(found) if lacking is not None else None
            if having is not None and pc.any(pc.and_(lacking, having)).as_py():
                raise OneByOne(lacking)  # fields of bad records are not reported
            return values, lacking, found_fields(found)
        others = [mask for mask in (lacking, records_with(found)) if mask is not None]
        return values, reduce(pc.or_, others) if others else None, NOTHING_FOUND


class Json:
    """Decodes JSON records of a declared struct, mostly by Arrow's reader.

    Types that Arrow's reader cannot read as declared (maps; no struct at all) are decoded by `StrictJson`.
    """

    def __init__(self, kind: pa.DataType, watch: Watch | None = None, one_value: bool = False) -> None:
        """Raises ConfigurationError for a type that JSON cannot represent; `one_value` as in `StrictJson`."""
        self.type = kind
        self._strict = StrictJson(kind, watch=watch, one_value=one_value)
        read_type = watch.without_column(kind) if watch else kind
        # Arrow reads maps from arrays of key and value, not from objects.
        fast = pa.types.is_struct(kind) and read_type.num_fields > 0 and not has_map(kind)
        self._arrow = ArrowJson(kind, watch) if fast else None

    def decode(self, raw: pa.Array) -> Decoded:
        if self._arrow is None:
            return self._strict.decode(raw)
        fast = self._arrow
        return joined(judged(piece, fast.parts(piece), self._strict.decode) for piece in pieces(raw))


def _candidates(raw: pa.Array, has_decimal: bool) -> tuple[pa.Array, pa.Array]:
    """The records as text, and which of them Arrow may read."""
    text = texts(raw)  # Arrow's JSON reader also reads what is not UTF-8
    objects = _objects(text, has_decimal)
    if not pc.all(objects).as_py():
        text = pc.ascii_trim(text, " \t\r\n")
        objects = _objects(text, has_decimal)
    return text, objects


def _objects(text: pa.Array, has_decimal: bool) -> pa.Array:
    """True if Arrow may read the record: `{…}`, not deeply nested, without anything about which Arrow is lenient."""
    good = pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}"))
    if (pc.max(pc.binary_length(text)).as_py() or 0) > 2 * MAX_DEPTH:
        brackets = pc.add(pc.count_substring(text, "["), pc.count_substring(text, "{"))
        good = pc.and_(good, pc.less_equal(brackets, MAX_DEPTH))
    bounds, data = value_bounds(text)
    given = b"" if data is None else data.slice(int(bounds[0]), int(bounds[-1] - bounds[0])).to_pybytes()
    if _may_be_lenient(given):
        good = pc.and_(good, pc.invert(pc.match_substring_regex(text, _LENIENT)))
    if has_decimal and _may_have_many_digits(given):
        good = pc.and_(good, pc.invert(pc.match_substring_regex(text, _MANY_DIGITS)))
    return pc.fill_null(good, False)


def _may_be_lenient(data: bytes) -> bool:
    return _has(data, b"NaN") or _has(data, b"Inf") or b"\x00" in data


def _has(data: bytes, word: bytes) -> bool:
    """The same as `word in data`, four times as fast where few bytes are the word's first one."""
    if word[:1] not in data:
        return False
    text = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(text[: 1 - len(word)] == word[0])
    return bool((text[places + len(word) - 1] == word[-1]).any()) and word in data


def _may_have_many_digits(data: bytes) -> bool:
    return any(part in data for part in (b"e-", b"E-", b"." + b"0" * 20, b"\\u00"))


def _text_of(name: str) -> str:
    """A regular expression for a field of this name with text; letters of the name may be escaped."""
    return rf"{re.escape(json.dumps(name, ensure_ascii=False))}\s*:\s*\"|\\[u/]"


def _samples(text: pa.Array, rows: pa.Array) -> list[Any]:
    """Some parsed records, to see whether times come as strings or as numbers."""
    samples = []
    for index in range(0, len(rows), max(1, len(rows) // _SAMPLES)):
        try:
            samples.append(json.loads(text[rows[index].as_py()].as_py()))
        except (ValueError, RecursionError):
            continue
    return samples


def _without(text: pa.Array, rows: pa.Array, pattern: str) -> pa.Array:
    """The rows whose text has no match of a regular expression."""
    return rows.filter(pc.invert(pc.match_substring_regex(text.take(rows), pattern)))


def _begins(path: list[str], kind: str) -> str:
    """A regular expression for where a value of this kind begins; `[]` in its path is an array."""
    arrays = len(path) - len([*dropwhile(lambda part: part == "[]", reversed(path))])
    name = path[-1 - arrays] if arrays < len(path) else ""
    return f'"{re.escape(name)}"\\s*:\\s*' + r"\[\s*" * arrays + _BEGINS[kind]
