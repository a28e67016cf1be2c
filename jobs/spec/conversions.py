"""Result columns of a transform that are conversions: casts, `to_timestamp` and `to_date` of a column's value.

Spark SQL has no error per row: a conversion that fails on one record ends the whole job. Spark also has forms that give
null instead. With them a record is at fault where the conversion's input is not null and its result is. That holds only
for conversions that never make null of a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise

import pyarrow as pa
import sqlglot
from pyarrow import types as arrow
from sqlglot import Token, TokenType, exp

from jobs.schema.types import parse_type
from jobs.spec.transform import Cast, Conversion
from resources.kafka_records import INSTANT

OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
TypeOf = Callable[[str], pa.DataType | None]
"""Spark's type of an expression; None where it is not certain."""


def conversion(text: str, declared: str | None, type_of: TypeOf) -> Conversion | None:
    """The conversion that a result column is, with the cast to its declared type.

    None where it is none, cannot fail, or may make null of a value.
    """
    found = _written(text, type_of) or Conversion(text, ())
    if declared:
        found = replace(found, casts=(*found.casts, Cast(parse_type(declared)[0])))
    kinds = [type_of(found.given), *(cast.kind for cast in found.casts)]
    reads_columns = expression_of(found.given).find(exp.Column)
    may_fail = any(after not in (before, pa.string()) for before, after in pairwise(kinds))
    return found if reads_columns and may_fail and all(_never_null(*pair) for pair in pairwise(kinds)) else None


def _written(text: str, type_of: TypeOf) -> Conversion | None:
    """The conversions that the text is, the innermost first."""
    name, arguments = _call(text)
    if name == "cast":
        kind = type_of(text)
        casts = [Cast(kind)] if kind is not None else []
    elif name in ("to_timestamp", "to_date") and len(arguments) <= 2:
        casts = [Cast(INSTANT, *arguments[1:])] if name == "to_timestamp" or arguments[1:] else []
        casts += [Cast(pa.date32())] if name == "to_date" else []
    else:
        casts = []
    if not casts or any(cast.form and not _is_text(cast.form) for cast in casts):
        return None
    inner = _written(arguments[0], type_of) or Conversion(arguments[0], ())
    return replace(inner, casts=(*inner.casts, *casts))


def _call(text: str) -> tuple[str, list[str]]:
    """The name of the function that the text calls, and its arguments, of a cast without the type; empty if the text is
    something else."""
    tokens = sqlglot.tokenize(text, dialect="spark")
    depths = _depths(tokens)
    if len(tokens) < 4 or tokens[1].token_type != TokenType.L_PAREN or depths.index(0, 1) != len(tokens) - 1:
        return "", []
    name = tokens[0].text.lower()
    ends = [n for n, token in enumerate(tokens) if depths[n] == 1 and token.token_type == TokenType.COMMA]
    if name == "cast":
        ends = [n for n, token in enumerate(tokens) if depths[n] == 1 and token.token_type == TokenType.ALIAS]
        return name, [text_of(text, tokens[2 : ends[-1]])]
    arguments = [tokens[a + 1 : b] for a, b in pairwise([1, *ends, len(tokens) - 1])]
    return (name, [text_of(text, one) for one in arguments]) if all(arguments) else ("", [])


def _depths(tokens: list[Token]) -> list[int]:
    """How many brackets are open after each token."""
    return list(accumulate((t.token_type in OPENING) - (t.token_type in CLOSING) for t in tokens))


def expression_of(text: str) -> exp.Expr:
    """The expression that the text is as a result column: alone, a column `desc` would be a statement."""
    found: exp.Expr = sqlglot.parse_one(f"select {text}", dialect="spark").expressions[0]
    return found


def text_of(sql: str, tokens: list[Token]) -> str:
    """The text of these tokens, as written."""
    return sql[tokens[0].start : tokens[-1].end + 1]


def _is_text(argument: str) -> bool:
    found = expression_of(argument)
    return isinstance(found, exp.Literal) and found.is_string


def _never_null(before: pa.DataType | None, after: pa.DataType | None) -> bool:
    """Whether the conversion gives a value for each value, if it does not fail: NaN is null as a decimal."""
    if before is None or after is None or arrow.is_nested(before) or arrow.is_nested(after):
        return False
    return not (arrow.is_floating(before) and arrow.is_decimal(after))
