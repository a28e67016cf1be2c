"""Parses and checks the statement of a transform.

It must return one row per record: no joins, no aggregates, no `order by`, `limit`, `distinct`, `explode`, nothing that
depends on other records or on the time. sqlglot resolves columns and types against the declared schema, because Dagster
loads definitions without a Spark server. Spark evaluates the text as written, and `batchmerge check` has Spark analyse
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import pyarrow as pa
import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from jobs.schema.types import form_of, parse_columns, parse_type, type_name
from jobs.spec.conversions import CLOSING, OPENING, conversion, expression_of, text_of
from jobs.spec.statement_types import certain_type, path
from jobs.spec.transform import KEY, METADATA, RECORDS, REFUSED, Conversion, Resolved, Transform, is_evaluated, is_taken
from resources.config_files.mistakes import did_you_mean, one_of
from resources.errors import ConfigurationError
from sql import quote

_FORBIDDEN: list[tuple[type[exp.Expr], str]] = [
    (exp.Subquery, "a subquery"),
    (exp.Join, "a join"),
    (exp.Lateral, "a lateral view"),
    (exp.Group, "`group by`"),
    (exp.Having, "`having`"),
    (exp.Order, "`order by`"),
    (exp.Limit, "`limit`"),
    (exp.Distinct, "`distinct`"),
    (exp.Window, "a window"),
    (exp.AggFunc, "an aggregate"),
    (exp.UDTF, "a function that gives several rows"),
    (exp.Rand, "a random number"),
    (exp.Uuid, "a random value"),
    (exp.CurrentDate, "the time of the run"),
    (exp.CurrentTime, "the time of the run"),
    (exp.CurrentTimestamp, "the time of the run"),
    (exp.Localtimestamp, "the time of the run"),
    (exp.CurrentUser, "the user of the run"),
]
_ALWAYS = "each record is transformed alone, always with the same result"
_PARTS = {"expressions", "from_", "from", "where"}
_UNSTABLE = {"now", "curdate", "current_timezone", "rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle",
             "monotonically_increasing_id", "current_catalog", "current_database", "current_schema", "session_user",
             "user", "spark_partition_id", "input_file_name", "input_file_block_start", "input_file_block_length",
             "reflect", "java_method", "try_reflect", "explode", "explode_outer", "posexplode", "posexplode_outer",
             "inline", "inline_outer", "stack", "json_tuple", "window", "session_window"}  # fmt: skip
# Texts that Spark takes for a moment of the run, as in `timestamp 'now'`.
_MOMENTS = ("now", "today", "tomorrow", "yesterday")


def resolve(transform: Transform, value: Mapping[str, str], key: Mapping[str, str] | None) -> Resolved:
    """The transform with its columns resolved against those of value and key.

    Raises:
        ConfigurationError: not such a statement, an unknown column, a type that has to be declared.
    """
    known = {**parse_fields(value), **METADATA}
    if key:
        known[KEY] = pa.struct(list(parse_columns(key)))
    select, tokens = _parsed(transform.sql)
    _check(select, tokens)
    pieces, where = _pieces(tokens)
    if len(pieces) != len(select.expressions):
        raise _wrong("its result columns cannot be kept apart")
    written = [
        text_of(transform.sql, _without_alias(piece, one))
        for piece, one in zip(pieces, select.expressions, strict=True)
    ]
    _name_as_declared(select, known)
    passes = any(star and not star[1] for star in map(_star, select.expressions))
    texts = _expand_stars(select, written, list(value), known)
    reads = _reads(select)
    _refuse_ambiguous(list(value), reads, bool(key), passes)
    _refuse_unknown(select, known)
    names = [one.output_name or f"_col_{n}" for n, one in enumerate(select.expressions)]
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise _wrong(f"two result columns have the name {twice[0]}")
    results, expressions = (dict(zip(names, found, strict=True)) for found in (select.expressions, texts))
    types = {
        name: transform.columns.get(name) or _declared(one.unalias(), value) or _type(name, one.unalias(), known)
        for name, one in results.items()
        if name != REFUSED
    }
    unused = sorted(set(transform.columns).difference(types))
    if unused:
        raise _wrong(f"`columns` names {', '.join(unused)}, which the statement does not give")
    unchanged = frozenset(
        name for name, one in results.items() if name not in transform.columns and _column(one.unalias(), value) == name
    )
    reads_of = {name: _reads(one).intersection(value) for name, one in results.items()}
    conversions = _conversions({name: expressions[name] for name in types}, transform.columns, known)
    condition = text_of(transform.sql, where) if where else None
    return Resolved(expressions, conversions, condition, types, reads, passes, unchanged, reads_of)


def _reads(expression: exp.Expr) -> frozenset[str]:
    """The columns of `records` that it reads."""
    return frozenset(path(column)[0] for column in expression.find_all(exp.Column))


def _conversions(
    expressions: Mapping[str, str], declared: Mapping[str, str], known: Mapping[str, pa.DataType]
) -> dict[str, Conversion]:
    def type_of(text: str) -> pa.DataType | None:
        expression = expression_of(text)
        _name_as_declared(expression, known)
        return certain_type(expression, known)

    found = {name: conversion(text, declared.get(name), type_of) for name, text in expressions.items()}
    return {name: one for name, one in found.items() if one}


def parse_fields(columns: Mapping[str, str]) -> dict[str, pa.DataType]:
    return {name: parse_type(text, name)[0] for name, text in columns.items()}


def _parsed(sql: str) -> tuple[exp.Select, list[Token]]:
    try:
        found, tokens = sqlglot.parse(sql, dialect="spark"), list(sqlglot.tokenize(sql, dialect="spark"))
    except SqlglotError as problem:
        raise _wrong(_unreadable(problem)) from None
    statements = [one for one in found if one is not None]
    if len(statements) != 1 or not isinstance(statements[0], exp.Select) or tokens[0].token_type != TokenType.SELECT:
        raise _wrong("it must be one `select`")
    return statements[0], tokens


def _unreadable(problem: SqlglotError) -> str:
    """Where sqlglot stopped: what it says itself names Python's classes."""
    if not isinstance(problem, ParseError) or not problem.errors:
        return "it cannot be read: a quote or a comment may be left open"
    where = problem.errors[0]
    description = str(where["description"])
    what = "something is missing or misspelt" if "<class" in description else description.lower()
    return f"it cannot be read in line {where['line']} at `{where['highlight']}`: {what}"


def _check(select: exp.Select, tokens: list[Token]) -> None:
    source = select.args.get("from_") or select.args.get("from")
    table = source.this.sql(dialect="spark", comments=False) if source else ""
    if table.strip("`").lower() != RECORDS or select.args.get("with_"):
        raise _wrong("it must select from `records` alone")
    for kind, name in _FORBIDDEN:
        if select.find(kind):
            raise _wrong(f"{name} is not allowed: {_ALWAYS}")
    _refuse_unstable(select, tokens)
    if further := sorted(part for part, given in select.args.items() if given and part not in _PARTS):
        raise _wrong(f"`{further[0]}` is not allowed: only result columns, `from` and `where`")


def _refuse_unstable(select: exp.Select, tokens: list[Token]) -> None:
    """Refuses what gives a record another result at another time, besides whole kinds of expressions."""
    for token, after in pairwise(tokens):
        if after.token_type == TokenType.L_PAREN and token.text.lower() in _UNSTABLE:
            raise _wrong(f"{token.text.lower()}() is not allowed: {_ALWAYS}")
    of_time = [one.this for one in select.find_all(exp.Cast) if one.to.is_type(*exp.DataType.TEMPORAL_TYPES)]
    for given in [*of_time, *(one.this for one in select.find_all(exp.TsOrDsToDate))]:
        if isinstance(given, exp.Literal) and given.name.strip().lower() in _MOMENTS:
            raise _wrong(f"'{given.name}' is not allowed: {_ALWAYS}")
    for call in select.find_all(exp.Anonymous):
        is_ecb = any(one.name.upper() == "ECB" for one in call.find_all(exp.Literal))
        if call.name.lower() == "aes_encrypt" and len(call.expressions) < 5 and not is_ecb:
            raise _wrong(f"aes_encrypt() needs an initialization vector: {_ALWAYS}")


def _pieces(tokens: list[Token]) -> tuple[list[list[Token]], list[Token]]:
    """Splits the statement: the tokens of each result column, and those of the condition."""
    depth, begin, results = 0, 1, []
    for n, token in enumerate(tokens):
        depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
        # Not the `from` of `is distinct from`.
        ends = token.token_type == TokenType.FROM and tokens[n - 1].token_type != TokenType.DISTINCT
        if depth == 0 and (ends or token.token_type == TokenType.COMMA):
            results.append(tokens[begin:n])
            begin = n + 1
        if depth == 0 and ends:
            break
    where = [token for token in tokens[begin + 2 :] if token.token_type != TokenType.SEMICOLON]
    return results, where


def _without_alias(tokens: list[Token], result: exp.Expr) -> list[Token]:
    if not isinstance(result, exp.Alias):
        return tokens
    return tokens[:-2] if tokens[-2].token_type == TokenType.ALIAS else tokens[:-1]


def _name_as_declared(expression: exp.Expr, columns: Mapping[str, pa.DataType]) -> None:
    """Gives results that are columns of `records` their declared spelling, since Spark compares names without case.
    Names in structs, and those after `as`, are kept as written."""
    declared = {name.lower(): name for name in (*columns, RECORDS)}
    for column in expression.find_all(exp.Column):
        parts = column.parts
        for part in parts[:2] if parts[0].name.lower() == RECORDS else parts[:1]:
            part.set("this", declared.get(part.name.lower(), part.name))


def _refuse_ambiguous(names: Sequence[str], reads: Collection[str], has_key: bool, passes: bool) -> None:
    """Refuses to read columns of the value that Spark, which ignores case, cannot tell from others of `records`."""
    read, seen = {name.lower() for name in reads}, dict[str, str]()
    for name in names:
        lower = name.lower()
        if is_evaluated(name, has_key) or (lower in read and is_taken(name, has_key)):
            raise _ambiguous(f"{name} is a column that `records` has besides those of the value")
        # The `except` of a star leaves out both, also the one that records may bring.
        if (other := seen.get(lower)) and (lower in read or passes):
            raise _ambiguous(f"{other} and {name} are one name to Spark")
        seen[lower] = name


def _ambiguous(what: str) -> ConfigurationError:
    return ConfigurationError(what, where="transform", remedy="give it another name by `source.value.rename`")


def _refuse_unknown(select: exp.Select, columns: Mapping[str, pa.DataType]) -> None:
    """Refuses names that are not columns of `records`, except parameters of a `lambda`."""
    roots = [[part.name for part in column.parts if part.name != RECORDS] for column in select.find_all(exp.Column)]
    unknown = list(dict.fromkeys(names[0] for names in roots if names and names[0] not in columns))
    if not unknown:
        return
    remedy = f"it has {', '.join(columns)}"
    if len(unknown) == 1:
        remedy = did_you_mean(unknown[0], list(columns), remedy)
    are = "is not a column" if len(unknown) == 1 else "are not columns"
    raise ConfigurationError(f"{one_of(unknown, 'and')} {are} of records", where="transform", remedy=remedy)


def _expand_stars(
    select: exp.Select, written: list[str], value: Sequence[str], known: Mapping[str, pa.DataType]
) -> list[str]:
    """Expands `*` to the columns of the value (not the key or the record's coordinates), and `column.*` to the fields
    of a struct.

    Args:
        written: the text of each result column.

    Returns:
        The text of each result column after expansion.
    """
    expanded: list[exp.Expr] = []
    texts: list[str] = []
    for one, text in zip(select.expressions, written, strict=True):
        found = _star(one)
        if found is None:
            expanded.append(one)
            texts.append(text)
            continue
        star, within = found
        names = _fields(within, known) if within else value
        left_out = {name.name.lower() for name in star.args.get("except_") or star.args.get("except") or []}
        unknown = left_out.difference(name.lower() for name in names)
        if unknown:
            raise _wrong(f"`except` names {', '.join(sorted(unknown))}, which is no column")
        kept = [name for name in names if name.lower() not in left_out]
        expanded += [exp.column(name, *reversed(within), quoted=True) for name in kept]
        texts += [quote("spark", (RECORDS, *within, name)) for name in kept]
    select.set("expressions", expanded)
    return texts


def _star(result: exp.Expr) -> tuple[exp.Star, list[str]] | None:
    """A result's `*`, and the struct whose fields it gives: none for the columns of the value."""
    star = result.this if isinstance(result, exp.Column) else result
    if not isinstance(star, exp.Star):
        return None
    return star, path(result)[:-1] if isinstance(result, exp.Column) else []


def _fields(struct: Sequence[str], known: Mapping[str, pa.DataType]) -> list[str]:
    kind = certain_type(exp.column(*reversed(struct)), known)
    if kind is None or not pa.types.is_struct(kind):
        raise _wrong(f"{'.'.join(struct)} is no struct of `records`, so it has no `*`")
    return [field.name for field in kind]


def _column(expression: exp.Expr, value: Mapping[str, str]) -> str | None:
    """The column of the value that the expression is; None for other expressions."""
    column = path(expression) if isinstance(expression, exp.Column) else []
    return column[0] if len(column) == 1 and column[0] in value else None


def _declared(expression: exp.Expr, value: Mapping[str, str]) -> str | None:
    """The declared type of a plain column of the value, with `not null`; None for other expressions."""
    column = _column(expression, value)
    if column is None:
        return None
    field = parse_columns({column: value[column]}).field(0)
    return (form_of(field) or type_name(field.type)) + ("" if field.nullable else " not null")


def _type(name: str, expression: exp.Expr, known: Mapping[str, pa.DataType]) -> str:
    """The type string of a result column."""
    found = certain_type(expression, known)
    if found is not None:
        return type_name(found)
    raise ConfigurationError(
        f"the type of {name} does not follow from the statement",
        where="transform",
        remedy=f"cast it, or declare its type: `transform: {{sql: …, columns: {{{name}: …}}}}`",
    )


def _wrong(what: str) -> ConfigurationError:
    return ConfigurationError(what, where="transform", remedy="correct the statement")
