"""How a table's schema may follow the declared columns: pure decisions, the same for every kind of table.

Rules: add a column (also nested), int to long, float to double, decimal to more digits with the same scale, required to
optional. Columns that are no longer declared are kept. All other changes are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from jobs.schema.types import inside, is_wider, type_name, with_inside
from jobs.spec.tables import Evolution
from resources.errors import ConfigurationError, SchemaRefused

Path = tuple[str, ...]


@dataclass(frozen=True)
class AddColumn:
    """A new optional column; the path of a nested one has `element` for a list's element, `value` for a map's value."""

    path: Path
    type: pa.DataType

    def __str__(self) -> str:
        return f"add column {'.'.join(self.path)} {type_name(self.type)}"


@dataclass(frozen=True)
class WidenType:
    path: Path
    old: pa.DataType
    new: pa.DataType

    def __str__(self) -> str:
        return f"widen {'.'.join(self.path)} from {type_name(self.old)} to {type_name(self.new)}"


@dataclass(frozen=True)
class RelaxRequired:
    path: Path

    def __str__(self) -> str:
        return f"make {'.'.join(self.path)} optional"


SchemaChange = AddColumn | WidenType | RelaxRequired


def plan_evolution(
    table: str, present: pa.Schema, wanted: pa.Schema, rules: Evolution, ignore_case: bool | None = None
) -> list[SchemaChange]:
    """The changes after which `wanted` rows fit into a table with the `present` schema; empty if they fit already.

    Args:
        ignore_case: names that differ only in case mean the same column; otherwise they are refused, since no engine
            can have both in one table. None: refused whatever the pipeline's option of this name says.

    Raises:
        SchemaRefused: names all changes that no rule allows; before anything is written.
    """
    allowed: list[SchemaChange] = []
    refused: list[str] = []
    for change in _fields((), list(present), list(wanted), ignore_case):
        if isinstance(change, str):
            refused.append(change)
        elif not _is_allowed(change, rules):
            refused.append(f"{change} is switched off by `evolve`")
        else:
            allowed.append(change)
    if refused:
        raise SchemaRefused(
            "; ".join(refused),
            where=table,
            remedy="correct the declared columns, or change the table by hand, then run again",
            table=table,
        )
    return allowed


def _is_allowed(change: SchemaChange, rules: Evolution) -> bool:
    if isinstance(change, AddColumn):
        return rules.add_columns
    if isinstance(change, WidenType):
        return rules.widen_types
    return rules.relax_required


def _fields(
    path: Path, present: list[pa.Field], wanted: list[pa.Field], ignore_case: bool | None
) -> Iterator[SchemaChange | str]:
    declared = {f.name for f in wanted}
    for field in wanted:
        alike = [f for f in present if f.name.lower() == field.name.lower()]
        same = [f for f in alike if f.name == field.name]
        if not alike:
            yield AddColumn((*path, field.name), field.type)
            continue
        if len(alike) > 1 or not (same or ignore_case):
            yield (
                f"column {'.'.join((*path, field.name))} differs from {' and '.join(f.name for f in alike)} in the "
                f"table by upper and lower case only{_spelling_advice(alike, ignore_case)}"
            )
            continue
        old = alike[0]
        here = (*path, old.name)
        declared.add(old.name)
        if field.nullable and not old.nullable:
            yield RelaxRequired(here)
        yield from _types(here, old.type, field.type, ignore_case)
    for field in present:
        if field.name not in declared and not field.nullable:
            yield RelaxRequired((*path, field.name))


def _spelling_advice(alike: list[pa.Field], ignore_case: bool | None) -> str:
    if len(alike) > 1:
        return ""
    if ignore_case is None:
        return f" (declare it as {alike[0].name})"
    return " (`ignore_case` makes one column of two spellings)"


def _types(path: Path, old: pa.DataType, new: pa.DataType, ignore_case: bool | None) -> Iterator[SchemaChange | str]:
    old, new = plain(old), plain(new)
    if old == new:
        return
    if _are_alike(old, new):
        if pa.types.is_map(old) and old.key_type != new.key_type:
            yield _refusal((*path, "key"), old.key_type, new.key_type)
        yield from _fields(path, inside(old), inside(new), ignore_case)
    elif is_wider(new, old):
        # The table's type is wider than the declared one: rows fit.
        return
    elif is_wider(old, new):
        yield WidenType(path, old, new)
    else:
        yield _refusal(path, old, new)


def evolved(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """The type of a column that holds its present values and those of a new type, by the rules of evolution."""
    old, new = plain(old), plain(new)
    if not _are_alike(old, new):
        return new if is_wider(old, new) else old
    known, wanted = ({f.name: f for f in inside(kind)} for kind in (old, new))
    kept = [_evolved(f, wanted[name]) if name in wanted else f for name, f in known.items()]
    return with_inside(old, [*kept, *(f.with_nullable(True) for name, f in wanted.items() if name not in known)])


def _evolved(old: pa.Field, new: pa.Field) -> pa.Field:
    return pa.field(old.name, evolved(old.type, new.type), old.nullable or new.nullable)


def _are_alike(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether both are structs, lists or maps."""
    return any(is_one(old) and is_one(new) for is_one in (pa.types.is_struct, pa.types.is_list, pa.types.is_map))


def _refusal(path: Path, old: pa.DataType, new: pa.DataType) -> str:
    return f"column {'.'.join(path)} is {_shown(old)} in the table and {type_name(new)} in the file"


def _shown(kind: pa.DataType) -> str:
    """The type for messages; tables of others may have types without a type string (nanoseconds)."""
    try:
        return type_name(kind)
    except ConfigurationError:
        return f"{kind}, which no column of a pipeline can be,"


def plain(kind: pa.DataType) -> pa.DataType:
    """The type without Arrow's storage variants (large strings and lists), which tables do not distinguish."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind):
        kind = pa.list_(kind.value_field)
    fields = [pa.field(f.name, plain(f.type), f.nullable) for f in inside(kind)]
    return pa.map_(plain(kind.key_type), *fields) if pa.types.is_map(kind) else with_inside(kind, fields)


def landed_otherwise(what: str, how: str, where: str) -> SchemaRefused:
    """The error for a row that was landed when the file declared a column otherwise, and does not fit any more.

    Args:
        how: the declaration with which it fits.
    """
    remedy = f"the row was landed when the file declared the column otherwise: declare it {how}, and the table follows"
    return SchemaRefused(what, where=where, remedy=remedy)
