"""Columns that come from fields of records: besides the declared ones (`unknown_fields: add`), or as the key. Pure.

The intermediate table's schema decides: its columns that are not declared were added when a batch was landed. So
everyone who opens the pipeline sees the same columns, and merges and replays are as deterministic as with declared
ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.destinations.registry import kind_of
from jobs.destinations.takes import Takes, Taking, fitted, is_required, takes_nothing
from jobs.evolution import evolved
from jobs.schema.found_fields import FoundFields, Path, field_paths, shown, without_paths
from jobs.schema.renaming import Renaming
from jobs.schema.types import as_text, inside, parse_columns, with_inside
from jobs.spec.changes import Key
from jobs.spec.column_rules import one_name
from jobs.spec.columns import optional
from jobs.spec.formats import columns_text
from jobs.spec.rules import mistakes
from jobs.spec.transform import is_taken
from jobs.spec.value import Value
from resources.config_files.mistakes import Mistake
from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.source import Source

# More new columns than this in one batch are probably values that a producer has written as names.
MOST_ADDED = 500
# The placeholder field of landed values while no column is known (`jobs.changes.columns`).
NO_COLUMN = "__none"
# The remedy for values that do not fit an existing column (see `docs/formats-and-change-data.md`).
OTHER_COLUMN = (
    "a column keeps its type: to let a field have another one, give it a new column by `source.value.rename`, "
    "then retry its dead letters"
)


def adds_columns(spec: PipelineSpec) -> bool:
    return spec.source.value.unknown_fields == "add"


def key_is_open(spec: PipelineSpec) -> bool:
    """Whether the tables' key is to be taken from the records' keys, and not known yet."""
    return spec.changes.key is None and spec.source.key_is_open


def with_key(spec: PipelineSpec, fields: Sequence[pa.Field]) -> PipelineSpec:
    """The pipeline with these fields of the record's key as its key, as if the file declared them."""
    assert spec.source.key is not None, "the key is open"
    key = spec.source.key.model_copy(update={"columns": columns_text(list(fields))})
    changes = spec.changes.model_copy(update={"key": Key(columns=[f.name for f in key.as_columns(fields)])})
    return spec.model_copy(update={"source": spec.source.model_copy(update={"key": key}), "changes": changes})


def key_found(spec: PipelineSpec, found: FoundFields, taking: Taking = takes_nothing) -> PipelineSpec:
    """The pipeline with the records' key, by the same rules as if the file declared it.

    Args:
        taking: what existing tables accept: columns that they have get their type, and are required if theirs are.

    Raises:
        ConfigurationError: the key breaks a rule, or records have none.
    """
    assert spec.source.key is not None, "the key is open"
    known, whole = set(mistakes(spec)), (spec.source.key.column,) if spec.source.key.column else ()
    tables = taking({(*whole, *path)[0] for path in found.by_path}) if found else {}
    problems = [f"no column can have {shown(path)}" for path, one in found.by_path.items() if one.type is None]
    columns = list[pa.Field]()
    for path, one in found.by_path.items():
        # A source may widen its key later, which tables cannot: so use the wide type from the first batch on.
        kind, at = pa.int64() if one.type == pa.int32() else one.type, (*whole, *path)
        try:
            fitting = fitted(kind, at, tables)
        except ConfigurationError as problem:
            problems.append(f"{shown(path)}: {problem.what}")
            continue
        if fitting is not None:
            columns.append(pa.field(path[-1], fitting, not is_required(at, tables)))
    made = with_key(spec, columns) if columns else spec
    problems += [mistake.what for mistake in mistakes(made) if mistake not in known]
    if problems or not columns:
        raise ConfigurationError(
            "; ".join(problems) or "the keys of records have no fields",
            where="source.key",
            remedy="declare `source.key.columns` and `changes.key`",
        )
    return made


def with_landed_columns(spec: PipelineSpec, landed: pa.Schema | None) -> PipelineSpec:
    """The pipeline with the undeclared columns of its intermediate table, and its key if that is open.

    Args:
        landed: the intermediate table's columns; None if it does not exist yet.
    """
    if landed is not None and key_is_open(spec) and "key" in landed.names:
        key = landed.field("key").type
        spec = with_key(spec, list(key.field(0).type if spec.source.key and spec.source.key.column else key))
    if landed is None or not adds_columns(spec) or "value" not in landed.names:
        return spec
    columns = landed.field("value").type
    filled = without_paths(columns, _unfilled(spec.source.value, columns))
    present = [f for f in filled or () if f.name != NO_COLUMN]
    nested = _merged_columns(spec, [f for f in present if f.name in spec.source.value.columns])
    # Only then the others: a transform may give the fields of a struct, new ones too, as columns of its own.
    return _merged_columns(nested, present)


def _merged_columns(spec: PipelineSpec, landed: Sequence[pa.Field]) -> PipelineSpec:
    """The pipeline with those landed columns that are the records' own, and not made by the transform."""
    declared, resolved = spec.source.value.columns, spec.source.resolved
    own = [f for f in landed if resolved is None or f.name in resolved.unchanged or not _is_made(f.name, spec.source)]
    return _with_columns(spec, _merged(list(parse_columns(declared)), own))


def _is_made(column: str, source: Source) -> bool:
    """Whether the statement makes the column, or an earlier one did: records bring none of a name that is taken."""
    return column in {**source.row, **source.value.columns} or is_taken(column, source.key is not None)


def _unfilled(value: Value, landed: pa.StructType) -> set[Path]:
    """Landed columns whose fields were excluded or renamed since: tables keep them, but they are no longer filled."""
    renaming = Renaming(value.rename)
    fields = [tuple(path.split(".")) for path in value.rename]
    before = {(*renaming.column(path)[:-1], path[-1]) for path in fields}
    excluded = {path for path in field_paths(landed) if renaming.field(path) in value.excluded}
    return excluded | before.difference(map(renaming.column, fields))


Column = tuple[Path, pa.Field]


@dataclass(frozen=True)
class Additions:
    """The result for fields that have no column.

    Attributes:
        spec: the pipeline with the new columns.
        added: from column (a path if it is nested) to type, for people.
        refused: from field to the reason why it cannot be a column.
        before: the previous type of those added columns that existed and become wider.
        bad: reasons why records of a sample would still be dead letters, with their numbers.
    """

    spec: PipelineSpec
    added: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)
    bad: Mapping[str, int] = field(default_factory=dict)

    @property
    def descriptions(self) -> dict[str, str]:
        """The types by column: `long`, or `int to long` if it becomes wider."""
        return {n: f"{self.before[n]} to {kind}" if n in self.before else kind for n, kind in self.added.items()}


def left_out(spec: PipelineSpec, found: FoundFields) -> FoundFields:
    """The fields in columns that the transform changes: no row has them, and they are only counted."""
    lost = spec.source.lost
    return FoundFields({path: one for path, one in found.by_path.items() if len(path) > 1 and path[:1] in lost})


def additions(
    spec: PipelineSpec, found: FoundFields, taking: Taking = takes_nothing, landed: pa.Schema | None = None
) -> Additions:
    """Makes columns of fields by the same rules as if the file declared them; `text` if no other type is possible.

    Args:
        taking: what existing tables accept: columns that they have get their type, and are required if theirs are.
        landed: the intermediate table's columns, also those that are no longer filled; None if they are not known.
    """
    nested = all(kind_of(table).capabilities.nullable_nested for table in spec.tables)
    tables = taking({path[0] for path in found.by_path}) if found else {}
    todo: list[list[Column]] = [[]]
    reasons: dict[Path, str] = {}
    refused: dict[str, str] = {}
    known, brought = set(mistakes(spec)), spec.source.value.brought
    lost, shared = left_out(spec, found).by_path, _shared_names(spec, landed)
    for path, one in sorted(found.by_path.items()):
        if path in lost:
            continue
        if len(todo[0]) == MOST_ADDED:
            refused[shown(path)] = f"more than {MOST_ADDED} new fields in one batch"
            continue
        wild = one.type is None or (pa.types.is_nested(one.type) and not (nested or _is_nested_in(tables, path)))
        kind = pa.string() if wild else one.type
        try:
            kind = kind if path in brought else fitted(kind, path, tables)
        except ConfigurationError as problem:
            refused[shown(path)] = problem.what
            continue
        todo[0].append(_column(path, kind, is_required(path, tables)))
    fields = list(parse_columns(spec.source.value.columns))
    present = [there.with_name(shown(path)) for path, _ in todo[0] if (there := _at(fields, path))]
    added: dict[str, str] = {}
    # Checking is costly and nearly always succeeds: check all columns at once, and bisect if a rule is broken.
    while todo:
        part = todo.pop()
        more, problems = _tried(spec, part, known)
        problems += sorted(_shared_names(more, landed) - shared - {*problems})
        problems += [
            f"{shown(path)} would be text, with a field in it that `exclude` names"
            for path in _around_excluded(spec, part)
        ]
        if not problems:
            spec = more
            added |= {shown(path): columns_text([column])[column.name] for path, column in part}
        elif len(part) > 1:
            todo += [part[len(part) // 2 :], part[: len(part) // 2]]
        else:
            ((path, column),) = part
            reason = reasons.setdefault(path, "; ".join(problems))
            if pa.types.is_string(column.type) or path in brought:
                refused[shown(path)] = reason
            else:
                todo.append([_column(path, pa.string(), is_required(path, tables))])
    return Additions(spec, added, refused, columns_text(present))


def _tried(spec: PipelineSpec, columns: Sequence[Column], known: Collection[Mistake]) -> tuple[PipelineSpec, list[str]]:
    """The pipeline with these columns, and its mistakes besides the known ones, as texts."""
    try:
        more = _with_planted(spec, columns)
        found = mistakes(more) if columns else ()
        return more, [mistake.what for mistake in found if mistake not in known]
    except ConfigurationError as problem:  # of a type that is nested too deep, or of the transform
        return spec, [problem.what]


def _shared_names(spec: PipelineSpec, landed: pa.Schema | None) -> set[str]:
    """Which of the pipeline's columns have one name with others, or with columns of the table that it lacks."""
    row = pa.struct(list(parse_columns(spec.source.row)))
    return set(one_name(row if landed is None else evolved(landed.field("value").type, row)))


def _is_nested_in(tables: Mapping[str, Mapping[str, Takes]], path: Path) -> bool:
    """Whether an existing table has a nested column at this path."""
    return len(path) == 1 and any(path[0] in c and pa.types.is_nested(c[path[0]].type) for c in tables.values())


def _at(fields: Sequence[pa.Field], path: Path) -> pa.Field | None:
    found = next((one for one in fields if one.name == path[0]), None)
    return found if found is None or len(path) == 1 else _at(inside(found.type), path[1:])


def _column(path: Path, kind: pa.DataType, required: bool) -> Column:
    return path, as_text(optional(pa.field(path[-1], kind))).with_nullable(not required)


def _around_excluded(spec: PipelineSpec, columns: Sequence[Column]) -> list[Path]:
    """The paths of these columns' parts that would be text, and contain an excluded field."""
    value = spec.source.value
    renaming = Renaming(value.rename)
    return [path for path in _texts(columns) if value.excluded.has_inside(renaming.field(path))]


def _texts(columns: Sequence[Column]) -> set[Path]:
    """The paths of these columns' parts that accept any value, as text."""
    return {
        (*path, *inner[1:])
        for path, column in columns
        for inner in field_paths([column])
        if (part := _at([column], inner)) and pa.types.is_string(part.type)
    }


def required_columns(spec: PipelineSpec) -> list[str]:
    """Columns that records have brought and in which a table does not accept null."""
    value = spec.source.value
    return [f.name for f in parse_columns(value.columns) if (f.name,) in value.brought and not f.nullable]


def _with_planted(spec: PipelineSpec, columns: Sequence[Column]) -> PipelineSpec:
    fields = list(parse_columns(spec.source.value.columns))
    for path, column in columns:
        fields = _planted(fields, path, column)
    return _with_columns(spec, fields)


def _with_columns(spec: PipelineSpec, fields: Sequence[pa.Field]) -> PipelineSpec:
    columns = columns_text(list(fields))
    if columns == spec.source.value.columns:
        return spec
    value = spec.source.value.with_columns(columns)
    return spec.model_copy(update={"source": spec.source.model_copy(update={"value": value})})


def widening_columns(spec: PipelineSpec) -> frozenset[Path]:
    """The paths of columns that become wider if the records' schema does; not those that the file declares."""
    return spec.source.value.brought if all(table.evolve.widen_types for table in spec.tables) else frozenset()


def _merged(declared: Sequence[pa.Field], landed: Sequence[pa.Field]) -> list[pa.Field]:
    """The declared fields, each with nested fields that were added, then the added ones, whose text accepts any
    value."""
    present = {f.name: f for f in landed}
    names = {f.name for f in declared}
    own = [f.with_type(_merged_type(f.type, present[f.name].type)) if f.name in present else f for f in declared]
    return [*own, *(as_text(optional(f)).with_nullable(f.nullable) for f in landed if f.name not in names)]


def _merged_type(declared: pa.DataType, landed: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(declared) and pa.types.is_struct(landed):
        return pa.struct(_merged(list(declared), list(landed)))
    if declared.id == landed.id and inside(declared):
        (own,), (other,) = inside(declared), inside(landed)
        return with_inside(declared, [own.with_type(_merged_type(own.type, other.type))])
    return declared


def _planted(fields: list[pa.Field], path: Path, column: pa.Field) -> list[pa.Field]:
    """The fields with a new or wider one at this path."""
    if len(path) == 1:
        return list({**{f.name: f for f in fields}, column.name: column}.values())
    return [f.with_type(_planted_in(f.type, path[1:], column)) if f.name == path[0] else f for f in fields]


def _planted_in(kind: pa.DataType, path: Path, column: pa.Field) -> pa.DataType:
    if not path:
        return column.type
    if pa.types.is_struct(kind):
        return pa.struct(_planted(list(kind), path, column))
    return with_inside(kind, [f.with_type(_planted_in(f.type, path[1:], column)) for f in inside(kind)])


def undeclared_counts(spec: PipelineSpec, counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The numbers of records by field, over several batches, for fields that still have no column."""
    known = set(map(shown, field_paths(parse_columns(spec.source.value.columns))))
    found: dict[str, int] = {}
    for batch in counts:
        for name, records in batch.items():
            if name not in known:
                found[name] = found.get(name, 0) + records
    return found
