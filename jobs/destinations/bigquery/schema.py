"""How the schemas of BigQuery tables follow what is declared: our rules first, BigQuery is asked only afterwards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from google.cloud.bigquery import SchemaField

from jobs.destinations.bigquery.columns import ARROW_TYPES, is_numeric
from jobs.destinations.bigquery.field import AnyField, Field, by_name
from jobs.destinations.bigquery.names import column_name
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.type_parameters import declared_digits, digits, has_digits, shown
from jobs.destinations.takes import Takes
from jobs.evolution import AddColumn, RelaxRequired, SchemaChange, plan_evolution
from jobs.spec.tables import Evolution
from resources.errors import SchemaRefused

Fields = Sequence[AnyField]

# BigQuery's types as the types that the rules compare: all whole numbers are one type, for example.
_COMPARED: dict[str, pa.DataType] = {
    **ARROW_TYPES,
    "NUMERIC": pa.decimal128(38, 9),
    "BIGNUMERIC": pa.decimal128(38, 38),
}
_STANDARD = {"BOOL": "BOOLEAN", "INT64": "INTEGER", "FLOAT64": "FLOAT", "STRUCT": "RECORD", "DECIMAL": "NUMERIC"}


def plan_changes(
    table: str, present: Fields, wanted: Fields, rules: Evolution, compared: Collection[str] = ()
) -> list[SchemaChange]:
    """The changes that let rows of `wanted` into a table of `present`; columns that are not wanted stay.

    Args:
        compared: the names of the columns by which rows are compared.

    Raises:
        SchemaRefused: a change that no rule allows, or a collation by which different texts are equal.
    """
    names = {name.lower() for name in compared}
    for column, collation in _collations((), [f for f in present if f.name.lower() in names]):
        raise SchemaRefused(
            f"column {column} has the collation {collation}, so rows whose texts differ would be one",
            where=table,
            remedy="copy the rows to a table in which the column has no collation, and write to that one",
            table=table,
        )
    foreign = list(_foreign((), present, wanted))
    if foreign:
        raise SchemaRefused(
            "; ".join(foreign),
            where=table,
            remedy="name the table's type in `column_types`, correct the declared columns, or change the table by hand",
            table=table,
        )
    return plan_evolution(table, _compared(present, present), _compared(wanted, present), rules)


def taken(present: Fields, names: Collection[str], table: BigQueryTable) -> dict[str, Takes]:
    """What the present columns of these names take. For those in `column_types` the pipeline file says it."""
    known = by_name(present)
    found: dict[str, Takes] = {}
    for name in names:
        field = known.get((column_name(name, table.sanitize_names) or "").lower())
        own = field is not None and name not in table.column_types
        if field is not None and own and standard_type(field) == "TIME" and field.mode != "REPEATED":
            found[name] = Takes(pa.time64("us"), field.mode != "REQUIRED")
            continue
        if field is None or name in table.column_types or not {*_kinds(field)} <= {*_COMPARED, "RECORD"}:
            continue
        (compared,) = _arrow_fields([field], present, limited=True)
        kind = standard_type(field) if field.mode != "REPEATED" else ""
        own = compared.type if digits(field) else _DECIMALS.get(kind, compared.type)
        also = _also(kind, field) if kind in _DECIMALS else _is_one(kind, field)
        found[name] = Takes(own, compared.nullable, also)
    return found


def _kinds(field: AnyField) -> Iterator[str]:
    yield standard_type(field)
    for inner in field.fields:
        yield from _kinds(inner)


_DECIMALS = {"NUMERIC": pa.decimal128(38, 9), "BIGNUMERIC": pa.decimal128(38, 18)}


def _also(column: str, field: AnyField) -> Callable[[pa.DataType], bool]:
    """Whether a type becomes NUMERIC or BIGNUMERIC, as the column is, and the column has its digits."""

    def takes(kind: pa.DataType) -> bool:
        is_decimal = bool(pa.types.is_decimal(kind)) and has_digits(field, (kind.precision, kind.scale))
        return is_decimal and is_numeric(kind) == (column == "NUMERIC")

    return takes


def _is_one(column: str, field: AnyField) -> Callable[[pa.DataType], bool]:
    """Whether a type becomes what the field is: a map is an array of pairs, a UUID text, fixed bytes bytes."""
    pairs = field.mode == "REPEATED" and [f.name for f in field.fields] == ["key", "value"]

    def takes(kind: pa.DataType) -> bool:
        if kind == pa.uuid():
            return column == "STRING"
        is_fixed = bool(pa.types.is_fixed_size_binary(kind))
        return column == "BYTES" if is_fixed else pairs and bool(pa.types.is_map(kind))

    return takes


def _foreign(path: tuple[str, ...], present: Fields, wanted: Fields) -> Iterator[str]:
    """Columns of types that the rules do not know (JSON, GEOGRAPHY, NUMERIC(10, 2), …) and that differ."""
    known = by_name(present)
    for field in wanted:
        old = known.get(field.name.lower())
        if old is None:
            continue
        here = (*path, field.name)
        kinds = standard_type(old), standard_type(field)
        if kinds == ("RECORD", "RECORD"):
            yield from _foreign(here, old.fields, field.fields)
        elif kinds[0] == kinds[1] and (declared := digits(field)) and not has_digits(old, declared):
            said = "decimal({},{})".format(*declared)
            yield f"column {'.'.join(here)} is {shown(old)} in the table and {said} in the file"
        elif kinds[0] != kinds[1] and not {*kinds} <= {*_COMPARED, "RECORD"}:
            yield f"column {'.'.join(here)} is {kinds[0]} in the table and {kinds[1]} in the file"


def _collations(path: tuple[str, ...], fields: Fields) -> Iterator[tuple[str, str]]:
    """The columns, or parts of columns, with a collation."""
    for field in fields:
        here = (*path, field.name)
        if collation := field.to_api_repr().get("collation"):
            yield ".".join(here), collation
        yield from _collations(here, field.fields)


def standard_type(field: AnyField) -> str:
    return _STANDARD.get(field.field_type, field.field_type)


def _compared(fields: Fields, spelled_as: Fields) -> pa.Schema:
    return pa.schema(_arrow_fields(fields, spelled_as))


def _arrow_fields(fields: Fields, spelled_as: Fields, limited: bool = False) -> list[pa.Field]:
    """The fields in Arrow's types, spelled as in the table: BigQuery does not tell upper from lower case.

    Args:
        limited: decimals have the digits of their fields; else all digits of their type.
    """
    present = by_name(spelled_as)
    found = []
    for field in fields:
        like = present.get(field.name.lower())
        nested = _arrow_fields(field.fields, like.fields if like else (), limited)
        scalar = (declared_digits(field) if limited else None) or _COMPARED.get(standard_type(field), pa.string())
        kind = pa.struct(nested) if standard_type(field) == "RECORD" else scalar
        if field.mode == "REPEATED":
            kind = pa.list_(pa.field("element", kind))
        found.append(pa.field(like.name if like else field.name, kind, field.mode != "REQUIRED"))
    return found


def changed_fields(present: Fields, wanted: Fields, changes: Sequence[SchemaChange]) -> list[SchemaField]:
    """The table's schema after these changes: additions last, as BigQuery wants it."""
    added = {c.path for c in changes if isinstance(c, AddColumn)}
    relaxed = {c.path for c in changes if isinstance(c, RelaxRequired)}
    return _changed((), present, wanted, added, relaxed)


def _changed(
    path: tuple[str, ...], present: Fields, wanted: Fields, added: set[tuple[str, ...]], relaxed: set[tuple[str, ...]]
) -> list[SchemaField]:
    known = by_name(wanted)
    found = []
    for field in present:
        here = (*path, field.name)
        inside = (*here, "element") if field.mode == "REPEATED" else here
        like = known.get(field.name.lower())
        nested = _changed(inside, field.fields, like.fields if like else (), added, relaxed)
        found.append(_with(field, "NULLABLE" if here in relaxed else field.mode, nested))
    new = [f for f in wanted if (*path, f.name) in added]
    return [*found, *(_with(f, "REPEATED" if f.mode == "REPEATED" else "NULLABLE", f.fields) for f in new)]


def _with(field: AnyField, mode: str, nested: Fields) -> SchemaField:
    # `to_api_repr` gives the field's own dictionary away: the field must stay as it is.
    document = {**field.to_api_repr(), "mode": mode}
    if nested:
        document["fields"] = [f.to_api_repr() for f in nested]
    return SchemaField.from_api_repr(document)


def lacking(present: Fields, wanted: Fields) -> list[AnyField]:
    """Top-level fields of `wanted` of which `present` lacks a nested part."""
    return [f for f in wanted if _lacks(present, [f])]


def _lacks(present: Fields, wanted: Fields) -> bool:
    known = by_name(present)
    return any(f.name.lower() not in known or _lacks(known[f.name.lower()].fields, f.fields) for f in wanted)


def placed(staged: Sequence[Field], destination: Fields) -> list[Field]:
    """The staging table's schema with the nested fields of the destination table, all of them and in its order:
    BigQuery assigns structs by position, whatever their fields are called."""
    known = by_name(destination)
    return [replace(row, fields=tuple(_placed(f, known.get(f.name.lower())) for f in row.fields)) for row in staged]


def _placed(field: Field, like: AnyField | None) -> Field:
    if like is None or not field.fields:
        return field
    wanted = {f.name.lower(): f for f in field.fields}
    known = [_placed(wanted.pop(f.name.lower(), _optional(f)), f) for f in like.fields]
    # Nested fields that the destination table lacks are added at its end.
    return replace(field, fields=(*known, *wanted.values()))


def _optional(field: AnyField) -> Field:
    mode = "REPEATED" if field.mode == "REPEATED" else "NULLABLE"
    return Field(field.name, standard_type(field), mode, tuple(map(_optional, field.fields)))


def can_follow(table: str, present: Fields, staged: Fields) -> bool:
    """Whether additions bring a staging table to this schema, with nested fields in their places."""
    try:
        plan_changes(table, present, staged, Evolution(), ("key", "orderBy"))
    except SchemaRefused:
        return False
    columns = {(row.name, f.name.lower()): f for row in staged for f in row.fields}
    pairs = [(f, columns.get((row.name, f.name.lower()))) for row in present for f in row.fields]
    return all(_begins(f.fields, like.fields) for f, like in pairs if like)


def _begins(present: Fields, wanted: Fields) -> bool:
    """Whether the wanted fields begin with those that are present."""
    return len(present) <= len(wanted) and all(
        one.name.lower() == other.name.lower() and _begins(one.fields, other.fields)
        for one, other in zip(present, wanted, strict=False)
    )
