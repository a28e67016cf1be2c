"""Which parts of landed rows are required in files of rows without null there (`NewFiles.full`).

So row groups of landed files can be copied into the tables. All columns of the intermediate table are optional: what is
required, the decoder checks per record, and dead letters have nothing but their coordinates.
"""

from __future__ import annotations

from jobs.destinations.registry import kind_of
from jobs.spec.pipeline import PipelineSpec


def full_columns(spec: PipelineSpec) -> frozenset[tuple[str, ...]]:
    """Paths of the structs of which append tables have fields, and of such fields that are `not null` in one.

    None where a system may load the files itself: then their schema is the table's in every detail.
    """
    if any(kind_of(one).capabilities.loads_landed_files for one in spec.tables):
        return frozenset()
    tables = [one for one in spec.tables if one.mode == "append"]
    columns = [column for one in tables for column in kind_of(one).columns(spec, one) if len(column.path) == 2]
    structs = {column.path[:1] for column in columns}
    return frozenset(structs | {column.path for column in columns if not column.nullable})
