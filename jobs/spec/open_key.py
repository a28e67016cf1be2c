"""A key that is left to the records: the pipeline gets it when the first batch is landed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.destinations.takes import Taking, fitted, is_required, takes_nothing
from jobs.schema.found_fields import FoundFields, shown
from jobs.spec.changes import Key
from jobs.spec.formats import columns_text
from jobs.spec.rules import mistakes
from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec


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
