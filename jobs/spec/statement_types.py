"""Infers the types of a statement's results, if they are certain.

Spark casts each result to its type, so a wrong type would change values. Types that are not certain have to be
declared. `tests/integration/test_statement_types.py` compares these types with Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from jobs.schema.types import parse_type
from jobs.spec.transform import RECORDS
from resources.errors import ConfigurationError
from resources.kafka_records import INSTANT

Of = Callable[[exp.Expr], pa.DataType | None]

_TEXT, _INT, _LONG, _DOUBLE = pa.string(), pa.int32(), pa.int64(), pa.float64()
# From the narrowest to the widest, as Spark widens them.
_NUMBERS = (_INT, _LONG, _DOUBLE)
_FIXED: Mapping[type[exp.Expr], pa.DataType] = {
    **dict.fromkeys((exp.Predicate, exp.And, exp.Or, exp.Not, exp.Boolean, exp.StartsWith, exp.EndsWith), pa.bool_()),
    **dict.fromkeys(
        (exp.RawString, exp.Upper, exp.Lower, exp.Initcap, exp.Trim, exp.ConcatWs, exp.RegexpReplace, exp.Repeat,
         exp.RegexpExtract, exp.Replace, exp.Translate, exp.TimeToStr, exp.MD5, exp.SHA2),
        _TEXT,
    ),
    **dict.fromkeys((exp.Length, exp.ArraySize, exp.Year, exp.Month, exp.Day, exp.Hour, exp.Minute), _INT),
    **dict.fromkeys((exp.UnixSeconds, exp.UnixMillis, exp.UnixMicros), _LONG),
    exp.RegexpSplit: pa.list_(pa.field("element", _TEXT)),
    exp.TsOrDsToDate: pa.date32(),
    exp.StrToTime: INSTANT,
}  # fmt: skip


def certain_type(expression: exp.Expr, columns: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """Spark's type of the expression over these columns; None: not certain."""
    if isinstance(expression, exp.Column):
        root, *fields = path(expression)
        return _field(columns.get(root), fields)
    fixed = next((kind for node, kind in _FIXED.items() if isinstance(expression, node)), None)
    rule = next((rule for nodes, rule in _RULES if isinstance(expression, nodes)), None)
    return rule(expression, partial(certain_type, columns=columns)) if fixed is None and rule else fixed


def path(column: exp.Column) -> list[str]:
    """The path of a column of the records, or of a field in it."""
    names = [part.name for part in column.parts]
    return names[1:] if names[0] == RECORDS and len(names) > 1 else names


def _field(kind: pa.DataType | None, fields: Sequence[str]) -> pa.DataType | None:
    for name in fields:
        if kind is None or not pa.types.is_struct(kind):
            return None
        found = [field.type for field in kind if field.name.lower() == name.lower()]
        kind = found[0] if len(found) == 1 else None
    return kind


def _element(kind: pa.DataType | None) -> pa.DataType | None:
    if kind is not None and pa.types.is_map(kind):
        return kind.item_type
    return kind.value_type if kind is not None and pa.types.is_list(kind) else None


def _literal(literal: exp.Literal) -> pa.DataType | None:
    if literal.is_string:
        return _TEXT
    number = int(literal.name) if literal.name.isdigit() else 2**63
    return _INT if number < 2**31 else _LONG if number < 2**63 else None


def _named(kind: exp.DataType) -> pa.DataType | None:
    """The type of a cast; not for structs, since sqlglot does not keep the spelling of their fields."""
    text = kind.sql(dialect="spark").lower()
    try:
        return None if "struct" in text else parse_type(text)[0]
    except ConfigurationError:
        return None


def _struct(fields: Sequence[tuple[str, pa.DataType | None]]) -> pa.DataType | None:
    return pa.struct(fields) if all(name and kind is not None for name, kind in fields) else None


def _name(part: exp.Expr) -> str:
    return part.this.name if isinstance(part, exp.PropertyEQ) else part.output_name


def _value(part: exp.Expr) -> exp.Expr:
    return part.expression if isinstance(part, exp.PropertyEQ) else part.unalias()


def _branches(expression: exp.Expr) -> list[exp.Expr]:
    """The possible results of a `case`, `if` or `coalesce`."""
    arguments = expression.args
    if isinstance(expression, exp.Case):
        found = [one.args["true"] for one in arguments["ifs"]] + [arguments.get("default")]
    elif isinstance(expression, exp.If):
        found = [arguments["true"], arguments.get("false")]
    else:
        found = [expression.this, *expression.expressions]
    return [one for one in found if one is not None]


def _texts(expression: exp.Expr) -> list[exp.Expr]:
    if isinstance(expression, exp.Concat):
        return list(expression.expressions)
    return [expression.left, expression.right] if isinstance(expression, exp.DPipe) else [expression.this]


def _common(kinds: Iterable[pa.DataType | None]) -> pa.DataType | None:
    """The common type, with numbers widened."""
    found = list(dict.fromkeys(kinds))
    if len(found) == 1:
        return found[0]
    return max(found, key=_NUMBERS.index) if found and all(kind in _NUMBERS for kind in found) else None


def _calculated(expression: exp.Expr, left: pa.DataType | None, right: pa.DataType | None) -> pa.DataType | None:
    if left not in _NUMBERS or right not in _NUMBERS:
        return None  # not certain, such as the precision of a decimal, or the sum of a date and a number
    if isinstance(expression, exp.Div):
        return _DOUBLE
    if isinstance(expression, exp.IntDiv):
        return _LONG if _DOUBLE not in (left, right) else None
    return _common([left, right])


def _text_of_texts(expression: exp.Expr, of: Of) -> pa.DataType | None:
    """Text if all arguments are text; Spark's result for other types is not certain."""
    return _TEXT if all(of(one) == _TEXT for one in _texts(expression)) else None


_RULES: Sequence[tuple[tuple[type[exp.Expr], ...], Callable[[Any, Of], pa.DataType | None]]] = (
    ((exp.Dot,), lambda e, of: _field(of(e.this), [e.expression.name])),
    ((exp.Bracket,), lambda e, of: _element(of(e.this))),
    ((exp.Literal,), lambda e, _: _literal(e)),
    ((exp.Cast,), lambda e, _: _named(e.to)),
    ((exp.Struct,), lambda e, of: _struct([(_name(part), of(_value(part))) for part in e.expressions])),
    (
        (exp.Paren, exp.Neg, exp.Abs, exp.Nullif, exp.ArrayFilter, exp.ArraySort, exp.ArrayDistinct),
        lambda e, of: of(e.this),
    ),
    (
        (exp.Case, exp.If, exp.Coalesce, exp.Greatest, exp.Least),
        lambda e, of: _common(of(one) for one in _branches(e) if not isinstance(one, exp.Null)),
    ),
    ((exp.Concat, exp.DPipe, exp.Substring, exp.Left, exp.Right), _text_of_texts),
    (
        (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.Div, exp.IntDiv),
        lambda e, of: _calculated(e, of(e.left), of(e.right)),
    ),
)
