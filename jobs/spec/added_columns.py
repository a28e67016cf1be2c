"""Columns that fields of records become, besides the declared ones (`unknown_fields: add`). Pure.

They are added while a batch is landed; `jobs.spec.landed_columns` finds them in the intermediate table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.destinations.registry import kind_of
from jobs.destinations.takes import Takes, Taking, fitted, is_required, takes_nothing
from jobs.evolution import evolved
from jobs.schema.found_fields import FoundFields, Path, field_paths, shown
from jobs.schema.renaming import Renaming
from jobs.schema.types import as_text, inside, parse_columns, with_inside
from jobs.spec.column_rules import one_name
from jobs.spec.columns import optional
from jobs.spec.formats import columns_text
from jobs.spec.rules import mistakes
from resources.config_files.mistakes import Mistake
from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

# More new columns than this in one batch are probably values that a producer has written as names.
MOST_ADDED = 500
# The placeholder field of landed values while no column is known (`jobs.changes.columns`).
NO_COLUMN = "__none"
# The remedy for values that do not fit an existing column (see `docs/formats-and-change-data.md`), and their errors.
OF_ANOTHER_TYPE = ("type", "range")
OTHER_COLUMN = (
    "a column keeps its type: to let a field have another one, give it a new column by `source.value.rename`, "
    "then retry its dead letters"
)


def adds_columns(spec: PipelineSpec) -> bool:
    return spec.source.value.unknown_fields == "add"


NewColumn = tuple[Path, pa.Field]


@dataclass(frozen=True)
class Additions:
    """The result for fields that have no column.

    Attributes:
        spec: the pipeline with the new columns.
        added: from column (a path if it is nested) to type, for people.
        refused: from field to the reason why it cannot be a column.
        before: the previous type of those added columns that existed and become wider.
        bad: reasons why records of a sample would still be dead letters, with their numbers.
        of_another_type: whether values that do not fit an existing column are among these.
    """

    spec: PipelineSpec
    added: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)
    bad: Mapping[str, int] = field(default_factory=dict)
    of_another_type: bool = False

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
    tables = taking({path[0] for path in found.by_path}) if found else {}
    wanted, refused = _wanted(spec, found, tables)
    reasons: dict[Path, str] = {}
    known, brought = set(mistakes(spec)), spec.source.value.brought
    shared = _shared_names(spec, landed)
    fields = list(parse_columns(spec.source.value.columns))
    present = [there.with_name(shown(path)) for path, _ in wanted if (there := _at(fields, path))]
    added: dict[str, str] = {}
    # Checking is costly and nearly always succeeds: check all columns at once, and bisect if a rule is broken.
    todo = [wanted]
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


def _wanted(
    spec: PipelineSpec, found: FoundFields, tables: Mapping[str, Mapping[str, Takes]]
) -> tuple[list[NewColumn], dict[str, str]]:
    """The columns that the fields are to become, and the fields that cannot become columns, with the reason.

    Args:
        tables: what the existing tables accept.
    """
    nested = all(kind_of(table).capabilities.nullable_nested for table in spec.tables)
    columns, refused = list[NewColumn](), dict[str, str]()
    lost, brought = left_out(spec, found).by_path, spec.source.value.brought
    for path, one in sorted(found.by_path.items()):
        if path in lost:
            continue
        if len(columns) == MOST_ADDED:
            refused[shown(path)] = f"more than {MOST_ADDED} new fields in one batch"
            continue
        wild = one.type is None or (pa.types.is_nested(one.type) and not (nested or _is_nested_in(tables, path)))
        kind = pa.string() if wild else one.type
        try:
            kind = kind if path in brought else fitted(kind, path, tables)
        except ConfigurationError as problem:
            refused[shown(path)] = problem.what
            continue
        columns.append(_column(path, kind, is_required(path, tables)))
    return columns, refused


def _tried(
    spec: PipelineSpec, columns: Sequence[NewColumn], known: Collection[Mistake]
) -> tuple[PipelineSpec, list[str]]:
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


def _column(path: Path, kind: pa.DataType, required: bool) -> NewColumn:
    return path, as_text(optional(pa.field(path[-1], kind))).with_nullable(not required)


def _around_excluded(spec: PipelineSpec, columns: Sequence[NewColumn]) -> list[Path]:
    """The paths of these columns' parts that would be text, and contain an excluded field."""
    value = spec.source.value
    renaming = Renaming(value.rename)
    return [path for path in _texts(columns) if value.excluded.has_inside(renaming.field(path))]


def _texts(columns: Sequence[NewColumn]) -> set[Path]:
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


def _with_planted(spec: PipelineSpec, columns: Sequence[NewColumn]) -> PipelineSpec:
    fields = list(parse_columns(spec.source.value.columns))
    for path, column in columns:
        fields = _planted(fields, path, column)
    return spec.with_columns(columns_text(fields))


def widening_columns(spec: PipelineSpec) -> frozenset[Path]:
    """The paths of columns that become wider if the records' schema does; not those that the file declares."""
    return spec.source.value.brought if all(table.evolve.widen_types for table in spec.tables) else frozenset()


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
    found = Counter[str]()
    for batch in counts:
        found.update({name: records for name, records in batch.items() if name not in known})
    return dict(found)
