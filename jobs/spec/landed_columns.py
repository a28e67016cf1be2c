"""Columns, and the key, that the pipeline file leaves to the records, as the intermediate table has them. Pure.

The intermediate table's schema decides: its columns that are not declared were added when a batch was landed. So
everyone who opens the pipeline sees the same columns, and merges and replays are as deterministic as with declared
ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.schema.found_fields import Path, field_paths, without_paths
from jobs.schema.renaming import Renaming
from jobs.schema.types import as_text, inside, parse_columns, with_inside
from jobs.spec.added_columns import NO_COLUMN, adds_columns
from jobs.spec.columns import optional
from jobs.spec.formats import columns_text
from jobs.spec.open_key import key_is_open, with_key
from jobs.spec.transform import is_taken
from jobs.spec.value import Value

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.source import Source


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
    return spec.with_columns(columns_text(_merged(list(parse_columns(declared)), own)))


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
