"""Column statistics of a data file for Iceberg's metadata, from the footer of the Parquet file. Pure.

As Iceberg's own writers make them: counts and bounds of columns and of struct fields, by the table's
`write.metadata.metrics.*`; only sizes for what is inside lists and maps. (pyiceberg makes no bounds for struct fields,
by which readers of landed rows prune: `kafka.partition`, `kafka.offset`.)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode, StatsAggregator, match_metrics_mode
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyiceberg.utils.decimal import unscaled_to_decimal

from jobs.iceberg.numbers import METRICS, number

Bounds = tuple[Any, Any] | None
"""The smallest and largest value of a column in a file or row group; None if they are not known."""

_LOG = logging.getLogger("batchmerge")
_USUAL = "truncate(16)"
_NONE = MetricsMode(MetricModeTypes.NONE)
_WITH_BOUNDS = (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)


@dataclass(frozen=True)
class Leaf:
    """One column of the Parquet file.

    Attributes:
        name: the dotted path in the table.
        parts: the names in the file, outermost first.
        repeated: whether it is inside a list or a map.
    """

    id: int
    name: str
    parts: tuple[str, ...]
    type: PrimitiveType
    repeated: bool

    @property
    def path(self) -> str:
        """The dotted path in the file."""
        return ".".join(self.parts)


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics by field id, as in Iceberg's manifests; bounds in Iceberg's binary form."""

    sizes: dict[int, int] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    nulls: dict[int, int] = field(default_factory=dict)
    lower: dict[int, bytes] = field(default_factory=dict)
    upper: dict[int, bytes] = field(default_factory=dict)


def bounds_of(file: DataFile, column: NestedField) -> Bounds:
    """The bounds of a column that is not nested, as Iceberg's metadata has them (days, microseconds).

    None for UUIDs: Java compares their halves as numbers with a sign, and some writers make bounds so.
    """
    low, high, i, kind = file.lower_bounds or {}, file.upper_bounds or {}, column.field_id, column.field_type
    assert isinstance(kind, PrimitiveType), "a column of single values"
    if isinstance(kind, UUIDType):
        return None
    return (from_bytes(kind, low[i]), from_bytes(kind, high[i])) if i in low and i in high else None


def group_bounds(file: pq.ParquetFile, group: int, columns: Iterable[str]) -> list[Bounds]:
    """The bounds of these columns in a row group, by their dotted paths in the file."""
    described = file.metadata.row_group(group)
    chunks = {chunk.path_in_schema: chunk for chunk in map(described.column, range(described.num_columns))}
    return [_known_bounds(chunks[column].statistics) if column in chunks else None for column in columns]


def _known_bounds(statistics: Any) -> Bounds:
    try:
        return (statistics.min, statistics.max) if statistics and statistics.has_min_max else None
    except OverflowError:
        return None  # Python cannot represent years after 9999


def leaves(schema: Schema) -> list[Leaf]:
    """The columns of a Parquet file of this schema, in its order."""
    return list(_of(schema, 0, schema.as_struct(), (), False))


def modes(columns: Sequence[Leaf], properties: Mapping[str, str]) -> dict[int, MetricsMode]:
    """The metrics mode of each column by field id. Very wide tables have metrics only for the first columns; struct
    fields count last."""
    default = _mode(properties.get(METRICS + "default", _USUAL)) or match_metrics_mode(_USUAL)
    most = number(properties, METRICS + "max-inferred-column-defaults")
    first = sorted(columns, key=lambda column: column.name.count("."))[:most]
    known = columns if METRICS + "default" in properties else first
    found = {column.id: default for column in known}
    for column in columns:
        if (own := properties.get(f"{METRICS}column.{column.name}")) and (mode := _mode(own)):
            found[column.id] = mode
    return found


@cache
def _mode(text: str) -> MetricsMode | None:
    """The parsed mode; None if Iceberg has no such mode: then the default applies, as for its own writers."""
    try:
        return match_metrics_mode(text)
    except ValueError:
        _LOG.warning("`%s*` of a table is %s, which is no metrics mode: the default is used", METRICS, text)
        return None


def column_statistics(
    footer: pq.FileMetaData, columns: Sequence[Leaf], kept: Mapping[int, MetricsMode]
) -> ColumnStatistics:
    """The statistics of a file over all its row groups."""
    found = ColumnStatistics()
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    for position, column in enumerate(columns):
        mode = kept.get(column.id, _NONE)
        if mode == _NONE:
            continue
        chunks = [group.column(position) for group in groups]
        found.sizes[column.id] = sum(chunk.total_compressed_size for chunk in chunks)
        if column.repeated:
            continue
        found.values[column.id] = sum(chunk.num_values for chunk in chunks)
        known = [chunk.statistics for chunk in chunks if chunk.is_stats_set]
        if len(known) == len(chunks) and all(s.has_null_count for s in known):
            found.nulls[column.id] = sum(s.null_count for s in known)
            if mode.type in _WITH_BOUNDS:
                _keep_bounds(found, column, mode, known)
    return found


def _keep_bounds(found: ColumnStatistics, column: Leaf, mode: MetricsMode, known: Sequence[Any]) -> None:
    """Adds the column's bounds, if every row group with values has bounds."""
    with_values = [s for s in known if s.num_values]
    if not with_values or not all(s.has_min_max for s in with_values):
        return
    text = isinstance(column.type, StringType | BinaryType)
    bounds = StatsAggregator(column.type, with_values[0].physical_type, mode.length if text else None)
    for statistics in with_values:
        bounds.update_min(_value(column, statistics, "min"))
        bounds.update_max(_value(column, statistics, "max"))
    lower, upper = bounds.min_as_bytes(), bounds.max_as_bytes()
    if lower is not None:
        found.lower[column.id] = lower
    if upper is not None:
        found.upper[column.id] = upper


def _value(column: Leaf, statistics: Any, which: str) -> Any:
    if isinstance(column.type, DateType | TimestampType | TimestamptzType):
        # Python cannot represent years after 9999.
        return getattr(statistics, f"{which}_raw")
    scale = getattr(column.type, "scale", None)
    if scale is not None and statistics.physical_type != "FIXED_LEN_BYTE_ARRAY":
        return unscaled_to_decimal(getattr(statistics, f"{which}_raw"), scale)
    return getattr(statistics, which)


def _of(schema: Schema, field_id: int, kind: IcebergType, parts: tuple[str, ...], repeated: bool) -> Iterator[Leaf]:
    if isinstance(kind, StructType):
        for part in kind.fields:
            yield from _of(schema, part.field_id, part.field_type, (*parts, part.name), repeated)
    elif isinstance(kind, ListType):
        yield from _of(schema, kind.element_id, kind.element_type, (*parts, "list", "element"), True)
    elif isinstance(kind, MapType):
        yield from _of(schema, kind.key_id, kind.key_type, (*parts, "key_value", "key"), True)
        yield from _of(schema, kind.value_id, kind.value_type, (*parts, "key_value", "value"), True)
    elif isinstance(kind, PrimitiveType):
        yield Leaf(field_id, schema.find_column_name(field_id) or "", parts, kind, repeated)
