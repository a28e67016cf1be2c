"""Decodes JSON to a declared type, one record at a time: the reference for all faster ways.

====================  ================================================================================
declared              accepted
====================  ================================================================================
``boolean``           ``true``, ``false``
``int``, ``long``     a number without fraction (``1``, ``1.0``, ``1e3``) that fits
``float``, ``double`` any number that does not overflow; nearest value; the strings ``NaN``, ``Infinity``, ``-Infinity``
``decimal(p,s)``      a number, or a string that is one, that fits exactly
``string``            a string
``text``              any value: a string as it is, anything else as JSON
``binary``            a base64 string
``date``              ``"YYYY-MM-DD"``, or days since 1970-01-01 as for ``int``
``timestamp``         an RFC 3339 string (no zone means UTC; digits after microseconds are cut), or milliseconds
                      since 1970-01-01 UTC as for ``long``
``timestamp_ntz``     the same without a zone
``array``             an array
``map<string,V>``     an object; of several equal keys the last
``struct``            an object; other fields are for `jobs.decode.unknown`, of several equal ones the last counts
====================  ================================================================================

A missing field and ``null`` are the same: null, or refused if the column is `not null`. The record itself must not be
``null``: a tombstone has no bytes at all. Undecodable are: everything that RFC 8259 does not allow (also ``NaN``),
bytes that are not UTF-8, a byte order mark, half a surrogate pair, more than `MAX_DEPTH` levels. Years are 1 to 9999.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any, NoReturn

import pyarrow as pa

from jobs.decode import best_fit
from jobs.decode.base import Decoded, Refused, decode_each
from jobs.decode.json_values import Convert, Exact, Integer, Real, field_converter, mismatch, scalar_converter
from jobs.decode.unknown import Finding, Rest, Watch, text_of
from jobs.schema.types import is_text, shown_type, type_name
from resources.errors import ConfigurationError

MAX_DEPTH = 200
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class StrictJson:
    """Decodes JSON records of any declared type; about 150,000 records of 110 bytes a second."""

    def __init__(
        self, kind: pa.DataType, ignore_case: bool = False, watch: Watch | None = None, one_value: bool = False
    ) -> None:
        """Raises ConfigurationError for a type that JSON cannot represent (a map whose keys are not strings).

        Args:
            ignore_case: field names are compared without case; a record with two fields that differ only in case is
                refused if they are declared.
            one_value: a record that is no object is the value of the only column, as in keys of one value.
        """
        self.type, self._ignore_case, self._watch, self._one_value = kind, ignore_case, watch, one_value
        self._only = kind.field(0).name if one_value and pa.types.is_struct(kind) and kind.num_fields == 1 else None
        _converter(kind, "", ignore_case)

    def __reduce__(self) -> tuple[type[StrictJson], tuple[Any, ...]]:
        return type(self), (self.type, self._ignore_case, self._watch, self._one_value)

    @cached_property
    def _convert(self) -> Convert:
        kind = self.type if self._watch is None else self._watch.without_column(self.type)
        return _converter(kind, "", self._ignore_case)

    @cached_property
    def _rest(self) -> Rest | None:
        return self._watch.rest(self.type, self._ignore_case) if self._watch else None

    def decode(self, raw: pa.Array) -> Decoded:
        found = Finding()
        values, errors = decode_each(raw, lambda record: self._value(record, found))
        return Decoded(pa.array(values, type=self.type), errors, unknown=found.fields)

    def _value(self, record: bytes, found: Finding) -> Any:
        parsed = parse_json(record)
        if self._only is not None and type(parsed) is not dict:
            if parsed is None:
                return None
            parsed = {self._only: parsed}
        value = self._convert(parsed)
        rest = self._rest(parsed) if self._rest else None
        return value if rest is None or self._watch is None else self._watch.apply(rest, value, found)


def _refuse_constant(_name: str) -> NoReturn:
    raise Refused("undecodable", "no JSON: NaN and Infinity are not allowed")


_DECODER = json.JSONDecoder(parse_int=Integer, parse_float=Real, parse_constant=_refuse_constant)
_NUMBERS = json.JSONDecoder(parse_float=Exact, parse_constant=_refuse_constant)
_WITH_CONSTANTS = json.JSONDecoder(parse_float=Exact, parse_constant=str)


def parse_json(record: bytes, numbers: bool = False, constants: bool = False) -> Any:
    """A JSON value; raises Refused.

    Args:
        numbers: numbers as Python's (int, `Exact`), not as text (`Integer`, `Real`).
        constants: the same, and NaN and the infinities, which JSON has not, as the texts of `NON_FINITE`.
    """
    if len(record) > 2 * MAX_DEPTH and record.count(b"[") + record.count(b"{") > MAX_DEPTH:
        _refuse_depth(record)
    try:
        text = record.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("undecodable", f"no UTF-8 at byte {error.start}") from None
    try:
        value = (_WITH_CONSTANTS if constants else _NUMBERS if numbers else _DECODER).decode(text)
    except json.JSONDecodeError as error:
        # Some of json's messages contain the offending text, and some end in "at".
        what = error.msg.split(":")[0].lower().removesuffix(" at").removesuffix(" starting")
        raise Refused("undecodable", f"no JSON: {what} at character {error.pos}") from None
    except ValueError:  # Python refuses integers of over 4,300 digits
        raise Refused("undecodable", "no JSON that is read: a number of too many digits") from None
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise Refused("undecodable", "half a surrogate pair in a string") from None
    return value


def _refuse_depth(record: bytes) -> None:
    depth = 0
    for match in _BRACKETS.finditer(record):
        token = match.group()
        if token in b"[{":
            depth += 1
        elif token in b"]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise Refused("undecodable", f"more than {MAX_DEPTH} levels inside each other")


def _converter(kind: pa.DataType, path: str, ignore_case: bool) -> Convert:
    """A function from a parsed JSON value (not null) to what `pa.array` accepts for the type; raises Refused."""
    where = f"column {path}" if path else "the record"
    if pa.types.is_struct(kind):
        return _struct(kind, path, where, ignore_case)
    if pa.types.is_list(kind):
        return _array(kind, path, where, ignore_case)
    if pa.types.is_map(kind):
        return _map(kind, path, where, ignore_case)
    return scalar_converter(kind, where)


def _field_converter(field: pa.Field, path: str, ignore_case: bool) -> Convert:
    if is_text(field):
        return text_of
    convert = field_converter(field, f"column {path}") or _converter(field.type, path, ignore_case)
    return best_fit.of_json(field, convert)


def _array(kind: pa.ListType, path: str, where: str, ignore_case: bool) -> Convert:
    inner_path = f"{path}.element" if path else "element"
    element = _field_converter(kind.value_field, inner_path, ignore_case)
    required, expected = not kind.value_field.nullable, type_name(kind)

    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise mismatch(where, expected, value)
        if required and None in value:
            raise mismatch(f"column {inner_path}", shown_type(kind.value_field), None)
        return [None if item is None else element(item) for item in value]

    return convert


def _map(kind: pa.MapType, path: str, where: str, ignore_case: bool) -> Convert:
    if kind.key_type != pa.string():
        raise ConfigurationError(
            "keys of a JSON object are strings", where=where, remedy=f"declare map<string,{type_name(kind.item_type)}>"
        )
    inner_path = f"{path}.value" if path else "value"
    item = _field_converter(kind.item_field, inner_path, ignore_case)
    required, expected = not kind.item_field.nullable, type_name(kind)

    def convert(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise mismatch(where, expected, value)
        if required and None in value.values():
            raise mismatch(f"column {inner_path}", shown_type(kind.item_field), None)
        return [(key, None if inner is None else item(inner)) for key, inner in value.items()]

    return convert


def _struct(kind: pa.StructType, path: str, where: str, ignore_case: bool) -> Convert:
    fields = []
    for field in kind:
        inner_path = f"{path}.{field.name}" if path else field.name
        expected = "" if field.nullable else f"column {inner_path}: expected {shown_type(field)} not null"
        fields.append((field.name, _field_converter(field, inner_path, ignore_case), expected))
    spelling = {field.name.lower(): field.name for field in kind}

    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise mismatch(where, "an object", value)
        if ignore_case:
            value = _spelled(value, spelling, where)
        converted = {}
        for name, field, expected in fields:
            inner = value.get(name)
            if inner is not None:
                converted[name] = field(inner)
            elif expected:
                raise Refused("missing", f"{expected}, found {'null' if name in value else 'nothing'}")
        return converted

    return convert


def _spelled(value: dict[str, Any], spelling: dict[str, str], where: str) -> dict[str, Any]:
    """The object with field names as they are declared; other fields are dropped."""
    found: dict[str, Any] = {}
    for name, inner in value.items():
        declared = spelling.get(name.lower())
        if declared in found:
            raise Refused("type", f"{where}: two fields of the name {declared}, in upper and lower case")
        if declared is not None:
            found[declared] = inner
    return found
