"""The statement of a transform, read and checked.

It must give one row per record: no joins, no aggregates, no `order by`, `limit`, `distinct`, `explode`, nothing that
depends on other records or on when it runs. The check is by sqlglot, which resolves columns and types against the
declared schema: Dagster loads definitions without a Spark server. `batchmerge check` has Spark analyse the same
expressions.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from jobs.schema.types import parse_columns, parse_type, type_name
from jobs.spec.transform import KEY, METADATA, RECORDS, REFUSED, Resolved, Transform
from resources.config_files.mistakes import closest, one_of
from resources.errors import ConfigurationError

_DIALECT = "spark, normalization_strategy = CASE_SENSITIVE"

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
    (exp.CurrentTimestamp, "the time of the run"),
]
_UNSTABLE = {"now", "rand", "randn", "random", "uuid", "shuffle", "monotonically_increasing_id", "current_user",
             "spark_partition_id", "input_file_name", "explode", "posexplode", "inline", "stack"}  # fmt: skip


def resolve(transform: Transform, value: Mapping[str, str], key: Mapping[str, str] | None) -> Resolved:
    """The transform with its columns resolved against those of value and key.

    Raises:
        ConfigurationError: not such a statement, an unknown column, a type that has to be declared.
    """
    known = {**parse_fields(value), **METADATA}
    if key:
        known[KEY] = pa.struct(list(parse_columns(key)))
    select = _parsed(transform.sql)
    _check(select)
    _expand_stars(select, parse_fields(value))
    _name_as_declared(select, known)
    _refuse_unknown(select, known)
    schema: dict[str, object] = {RECORDS: {name: type_name(kind) for name, kind in known.items()}}
    try:
        qualified = annotate_types(
            qualify(select, schema=schema, dialect=_DIALECT, quote_identifiers=True), schema=schema, dialect=_DIALECT
        )
    except SqlglotError as problem:
        raise _wrong(str(problem).splitlines()[0]) from None
    projections = {p.alias_or_name: p.unalias() for p in qualified.selects}
    if len(projections) != len(qualified.selects):
        raise _wrong("two result columns have the same name")
    types = {
        name: transform.columns.get(name) or _declared(expression, value) or _type(name, expression, known)
        for name, expression in projections.items()
        if name != REFUSED
    }
    unused = sorted(set(transform.columns).difference(types))
    if unused:
        raise _wrong(f"`columns` names {', '.join(unused)}, which the statement does not give")
    where = qualified.args.get("where")
    return Resolved(
        {name: _text(expression) for name, expression in projections.items()},
        _text(where.this) if where else None,
        types,
    )


def parse_fields(columns: Mapping[str, str]) -> dict[str, pa.DataType]:
    return {name: parse_type(text, name)[0] for name, text in columns.items()}


def _parsed(sql: str) -> exp.Select:
    try:
        found = sqlglot.parse(sql, dialect="spark")
    except SqlglotError as problem:
        raise _wrong(str(problem).splitlines()[0]) from None
    if len(found) != 1 or not isinstance(found[0], exp.Select):
        raise _wrong("it must be one `select`")
    return found[0]


def _check(select: exp.Select) -> None:
    source = select.args.get("from_") or select.args.get("from")
    if source is None or source.this.sql(dialect="spark").lower() != RECORDS or select.args.get("with_"):
        raise _wrong("it must select from `records` alone")
    for kind, name in _FORBIDDEN:
        if select.find(kind):
            raise _wrong(f"{name} is not allowed: each record is transformed on its own, at any time alike")
    for function in select.find_all(exp.Func):
        name = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
        if name.lower() in _UNSTABLE:
            raise _wrong(f"{name.lower()}() is not allowed: each record is transformed on its own, at any time alike")


def _name_as_declared(select: exp.Select, columns: Mapping[str, pa.DataType]) -> None:
    """Spark does not tell upper from lower case; names of result columns stay as they are written."""
    declared = {name.lower(): name for name in (*columns, RECORDS)}
    for table in select.find_all(exp.Table):
        table.set("this", exp.to_identifier(RECORDS, quoted=True))
    for column in select.find_all(exp.Column):
        parts = column.parts
        for part in parts[:2] if parts[0].name.lower() == RECORDS else parts[:1]:
            part.set("this", declared.get(part.name.lower(), part.name))


def _refuse_unknown(select: exp.Select, columns: Mapping[str, pa.DataType]) -> None:
    """Names that are no column of `records`; those of a `lambda` are no columns."""
    roots = [[part.name for part in column.parts if part.name != RECORDS] for column in select.find_all(exp.Column)]
    unknown = list(dict.fromkeys(names[0] for names in roots if names and names[0] not in columns))
    if not unknown:
        return
    meant = [closest(name, list(columns)) for name in unknown]
    guess = f"did you mean `{meant[0]}`?" if len(unknown) == 1 and meant[0] else f"it has {', '.join(columns)}"
    are = "is not a column" if len(unknown) == 1 else "are not columns"
    raise ConfigurationError(f"{one_of(unknown, 'and')} {are} of records", where="transform", remedy=guess)


def _expand_stars(select: exp.Select, columns: Mapping[str, pa.DataType]) -> None:
    """`*` are the columns of the value; the key and the place of the record are named by those who want them.

    `column.*` are the fields of a struct.
    """
    expanded: list[exp.Expr] = []
    for one in select.expressions:
        star = one.this if isinstance(one, exp.Column) else one
        if not isinstance(star, exp.Star):
            expanded.append(one)
            continue
        struct = columns.get(one.table) if isinstance(one, exp.Column) and one.table else None
        if struct is not None and pa.types.is_struct(struct):
            expanded += [exp.column(f.name, table=one.table, quoted=True).as_(f.name, quoted=True) for f in struct]
            continue
        left_out = {name.name.lower() for name in star.args.get("except_") or star.args.get("except") or []}
        unknown = left_out.difference(c.lower() for c in columns)
        if unknown:
            raise _wrong(f"`except` names {', '.join(sorted(unknown))}, which is no column")
        expanded += [exp.column(c, quoted=True) for c in columns if c.lower() not in left_out]
    select.set("expressions", expanded)


def _declared(expression: exp.Expr, value: Mapping[str, str]) -> str | None:
    """The type of a plain column of the value as it is written: with `not null`, which no row breaks."""
    if not isinstance(expression, exp.Column) or expression.name not in value:
        return None
    field = parse_columns({expression.name: value[expression.name]}).field(0)
    return type_name(field.type) + ("" if field.nullable else " not null")


def _type(name: str, expression: exp.Expr, known: Mapping[str, pa.DataType]) -> str:
    """The type text of a result column; a plain column keeps its own."""
    if isinstance(expression, exp.Column):
        return type_name(known[expression.name])
    found = expression.type
    text = found.sql(dialect="spark").lower() if found else "unknown"
    # The precision of a calculated decimal is Spark's business.
    calculated = text.startswith("decimal") and not isinstance(expression, exp.Cast)
    try:
        if not calculated:
            return type_name(parse_type(text.replace("`", ""), name)[0])
    except ConfigurationError:
        pass
    raise ConfigurationError(
        f"the type of {name} does not follow from the statement",
        where="transform",
        remedy=f"cast it, or say it: `transform: {{sql: …, columns: {{{name}: …}}}}`",
    )


def _text(expression: exp.Expr) -> str:
    return expression.sql(dialect="spark")


def _wrong(what: str) -> ConfigurationError:
    return ConfigurationError(what, where="transform", remedy="correct the statement")
