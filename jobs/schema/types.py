"""The type strings of pipeline files, parsed to Arrow types and printed back.

===============================  ===============================================
in a pipeline file               Arrow
===============================  ===============================================
``boolean``                      ``bool_()``
``int``, ``long`` (``bigint``)   ``int32()``, ``int64()``
``float``, ``double``            ``float32()``, ``float64()``
``decimal(p,s)``                 ``decimal128(p, s)``, 1 <= p <= 38, 0 <= s <= p
``string``, ``binary``           ``string()``, ``binary()``
``text``                         ``string()`` with a mark (`is_text`): any value, as JSON where it is no text
``uuid``                         ``string()`` with a mark (`form_of`): 36 characters in lower case
``time``                         ``string()`` with a mark: ``HH:MM:SS`` or ``HH:MM:SS.ffffff``
``fixed(n)``                     ``binary()`` with a mark: n bytes, 1 <= n <= 65,535
``date``                         ``date32()``
``timestamp``                    ``timestamp('us', 'UTC')``: an instant
``timestamp_ntz``                ``timestamp('us')``: a wall clock, no zone
``array<T>``                     ``list_(field('element', T))``
``map<K,V>``                     ``map_(K, V)``, keys are never null
``struct<a: T, b: T>``           ``struct([...])``
===============================  ===============================================

Values of ``uuid``, ``time`` and ``fixed(n)`` are landed as text or bytes of one form, since Spark has no such types.
Tables have types of their own for them (`own_type`).

Every type may be followed by ``not null``: of a column, an array's elements, a map's values, a struct's field.
A field name that is no identifier stands in backticks, a backtick in it doubled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set

import pyarrow as pa

from jobs.schema.other_names import meant_phrase, meant_type
from resources.errors import ConfigurationError

MAX_DEPTH = 32

_SCALARS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "text": pa.string(),
    "uuid": pa.string(),
    "time": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
# What tables have for text and bytes of a form, beside binary of n bytes.
_OWN: dict[str, pa.DataType] = {"uuid": pa.uuid(), "time": pa.time64("us")}
_NAMES = {kind: name for name, kind in _SCALARS.items() if name not in ("bigint", "text", *_OWN)}
_NAMES |= {kind: name for name, kind in _OWN.items()}
_MARK = b"batchmerge"
_TEXT = {_MARK: b"text"}
_MOST_BYTES = 65_535
_KNOWN = (
    "use one of boolean, int, long, float, double, decimal(p,s), string, text, binary, date, timestamp, "
    "timestamp_ntz, time, uuid, fixed(n), array<T>, map<K,V>, struct<name: T, ...> (a name with other characters than "
    "letters, digits and _ in backticks), each with `not null` after it if it must be present"
)
# YAML reads `{price: decimal(10,2)}` as the two entries `decimal(10` and `2)`.
_CUT_OFF = "write the whole type; in YAML put a type that has a comma in quotes, because otherwise it ends there"
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_TOKEN = re.compile(rf"\s*(?:(`(?:[^`]|``)+`)|({_IDENTIFIER.pattern})|(\d+)|([<>(),:]))")


def parse_type(text: str, column: str = "") -> tuple[pa.DataType, bool]:
    """The Arrow type of a type string, and whether it may be null.

    Raises:
        ConfigurationError: the text is no type; names the column and the position (from 1).
    """
    found = _Parser(text, column).whole()
    return found.type, found.nullable


def parse_columns(columns: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema of columns given as name to type string, in their order.

    Raises:
        ConfigurationError: a type string is wrong.
    """
    return pa.schema([_Parser(text, name).whole().with_name(name) for name, text in columns.items()])


def inside(kind: pa.DataType) -> list[pa.Field]:
    """The fields inside a type: those of a struct, ``element`` of a list, ``value`` of a map."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_list(kind):
        return [kind.value_field.with_name("element")]
    return [kind.item_field.with_name("value")] if pa.types.is_map(kind) else []


def with_inside(kind: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """The type with these fields inside it (`inside`) instead of its own."""
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_list(kind):
        return pa.list_(fields[0])
    return pa.map_(kind.key_type, fields[0]) if pa.types.is_map(kind) else kind


def has_map(kind: pa.DataType) -> bool:
    """Whether the type contains a map."""
    return holds(kind, pa.types.is_map)


def holds(kind: pa.DataType, fits: Callable[[pa.DataType], bool]) -> bool:
    """Whether the type is, or contains, one that fits."""
    return fits(kind) or any(holds(kind.field(i).type, fits) for i in range(kind.num_fields))


def is_text(field: pa.Field) -> bool:
    """Whether the field accepts values of any type as text."""
    return bool(field.metadata) and _TEXT.items() <= field.metadata.items()


def form_of(field: pa.Field) -> str:
    """`uuid`, `time` or `fixed(n)`, if the values of the field, which are text or bytes, have this form; else empty."""
    found = str((field.metadata or {}).get(_MARK, b""), "ascii")
    return found if found != "text" else ""


def with_form(field: pa.Field, form: str) -> pa.Field:
    """The field, with values of this form."""
    return field.with_metadata({_MARK: form})


def own_type(field: pa.Field) -> pa.DataType:
    """The type of the field's column in a table: with types of their own for text and bytes of a form, also nested."""
    if form := form_of(field):
        return _OWN.get(form) or pa.binary(length_of(form))
    return with_inside(field.type, [f.with_type(own_type(f)) for f in inside(field.type)])


def length_of(form: str) -> int:
    """The number of bytes of `fixed(n)`."""
    return int(form.removeprefix("fixed(").removesuffix(")"))


def is_own(kind: pa.DataType) -> bool:
    """Whether the type is one that tables have for text or bytes of a form."""
    return kind in _OWN.values() or pa.types.is_fixed_size_binary(kind)


def landed_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values of a table's type are landed: the inverse of `own_type`."""
    if is_own(kind):
        return pa.binary() if pa.types.is_fixed_size_binary(kind) else pa.string()
    return with_inside(kind, [f.with_type(landed_type(f.type)) for f in inside(kind)])


def as_text(field: pa.Field) -> pa.Field:
    """The field with all its strings, also nested ones, marked to accept values of any type; not those of a form."""
    if form_of(field):
        return field
    if pa.types.is_string(field.type):
        return field.with_metadata(_TEXT)
    return field.with_type(with_inside(field.type, [as_text(f) for f in inside(field.type)]))


def field_text(field: pa.Field) -> str:
    """The type string of a field, with `text` and `not null`; raises as `type_name` does."""
    return shown_type(field) + ("" if field.nullable else " not null")


def shown_type(field: pa.Field) -> str:
    """The same without `not null`."""
    return "text" if is_text(field) else form_of(field) or type_name(field.type)


def type_name(kind: pa.DataType) -> str:
    """The type string of an Arrow type, the inverse of `parse_type`; also that of a type of `own_type`.

    Raises:
        ConfigurationError: the Arrow type has no type string.
    """
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed({kind.byte_width})"
    if pa.types.is_list(kind):
        return f"array<{field_text(kind.value_field)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{field_text(kind.item_field)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{_quoted(f.name)}: {field_text(f)}" for f in kind) + ">"
    raise ConfigurationError(f"the type {kind} has no name here", remedy=_KNOWN)


def _quoted(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    """A recursive descent over the tokens of one type string."""

    def __init__(self, text: str, column: str) -> None:
        self.text, self.column, self.at = text, column, 0

    def whole(self) -> pa.Field:
        found = self._type(0)
        if self._peek() is not None:
            raise self._error("expected the end", meant_phrase(self.text))
        return found

    def _type(self, depth: int) -> pa.Field:
        """A field without a name."""
        if depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} types inside each other")
        start = self.at
        name = (self._take("a type", _IDENTIFIER.fullmatch)).lower()
        mark = name if name in ("text", *_OWN) else ""
        if name in _SCALARS:
            kind = _SCALARS[name]
        elif name == "fixed":
            kind, mark = pa.binary(), f"fixed({self._length()})"
        elif name == "decimal":
            kind = self._decimal()
        elif name in ("array", "map", "struct"):
            self._symbol("<")
            kind = getattr(self, f"_{name}")(depth + 1)
            self._symbol(">")
        else:
            self.at = start
            raise self._error("no such type", meant_type(name, _SCALARS) or _KNOWN)
        return pa.field("", kind, nullable=not self._not_null(), metadata={_MARK: mark} if mark else None)

    def _decimal(self) -> pa.DataType:
        start = self.at
        self._symbol("(")
        precision = int(self._take("a precision", str.isdigit))
        self._symbol(",")
        scale = int(self._take("a scale", str.isdigit))
        self._symbol(")")
        if not (1 <= precision <= 38 and scale <= precision):
            self.at = start
            raise self._error("a decimal has a precision of 1 to 38 and a scale of 0 to the precision")
        return pa.decimal128(precision, scale)

    def _length(self) -> int:
        start = self.at
        self._symbol("(")
        length = int(self._take("a number of bytes", str.isdigit))
        self._symbol(")")
        if not 1 <= length <= _MOST_BYTES:
            self.at = start
            raise self._error(f"fixed has 1 to {_MOST_BYTES:,} bytes")
        return length

    def _array(self, depth: int) -> pa.DataType:
        return pa.list_(self._type(depth).with_name("element"))

    def _map(self, depth: int) -> pa.DataType:
        start = self.at
        key = self._type(depth)
        if form := form_of(key):
            self.at = start
            raise self._error(f"the key of a map cannot be {form}: write {type_name(key.type)}")
        self._symbol(",")
        value = self._type(depth)
        return pa.map_(key.type, value.with_name("value"))

    def _struct(self, depth: int) -> pa.DataType:
        fields: list[pa.Field] = []
        while not fields or self._peek() == ",":
            if fields:
                self._symbol(",")
            start = self.at
            token = self._take("a field name", lambda t: t[0] == "`" or bool(_IDENTIFIER.fullmatch(t)))
            name = token[1:-1].replace("``", "`") if token[0] == "`" else token
            if any(f.name == name for f in fields):
                self.at = start
                raise self._error("a field name stands twice in one struct")
            self._symbol(":")
            fields.append(self._type(depth).with_name(name))
        return pa.struct(fields)

    def _not_null(self) -> bool:
        token = self._peek()
        if token is None or token.lower() != "not":
            return False
        self._take("`not null`", lambda t: t.lower() == "not")
        self._take("`not null`", lambda t: t.lower() == "null")
        return True

    def _symbol(self, symbol: str) -> None:
        self._take(f"`{symbol}`", symbol.__eq__)

    def _take(self, expected: str, fits: Callable[[str], object]) -> str:
        token = self._peek()
        if token is None or not fits(token):
            raise self._error(f"expected {expected}")
        match = _TOKEN.match(self.text, self.at)
        assert match is not None  # _peek has just seen it
        self.at = match.end()
        return token

    def _peek(self) -> str | None:
        match = _TOKEN.match(self.text, self.at)
        if match:
            return match.group().lstrip()
        if self.text[self.at :].strip():
            raise self._error("unexpected character")
        return None

    def _error(self, what: str, remedy: str = "") -> ConfigurationError:
        rest = self.text[self.at :]
        position = self.at + len(rest) - len(rest.lstrip()) + 1
        return ConfigurationError(
            f"the type {self.text!r} is wrong at position {position}: {what}",
            where=f"column {self.column}" if self.column else "",
            remedy=remedy or (_KNOWN if rest.strip() or what != "expected `,`" else _CUT_OFF),
            column=self.column,
            position=position,
        )


def is_wider(narrow: pa.DataType, wide: pa.DataType | None) -> bool:
    """True where every value of `narrow` is a value of `wide` by one of the rules of evolution."""
    if wide is not None and pa.types.is_decimal(narrow) and pa.types.is_decimal(wide):
        return bool(narrow.scale == wide.scale and narrow.precision < wide.precision)
    return (narrow, wide) in {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


_WHOLE = {pa.int32(), pa.int64()}
_NUMBERS = {*_WHOLE, pa.float32(), pa.float64()}


def number_type(kinds: Set[pa.DataType]) -> pa.DataType | None:
    """The type that takes the numbers of these different types; None if there are other types among them."""
    if not kinds <= _NUMBERS:
        return None
    return pa.int64() if kinds <= _WHOLE else pa.float64()


def as_integers(values: pa.Array) -> pa.Array:
    """Dates in days, timestamps and times in microseconds, as Iceberg's metadata has them; other values as they are."""
    if pa.types.is_date(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) or pa.types.is_time(values.type) else values
