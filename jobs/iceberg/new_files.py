"""Data files that Spark's tasks write themselves: their paths, format and descriptions.

A task returns descriptions of files instead of rows; the run commits the files that they name, and no others. So a
task that runs twice doubles nothing: its files have new names each time, and files that no description names are
orphans that maintenance removes.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.sorting import SortOrder
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from jobs.evolution import plain
from jobs.iceberg.numbers import TARGET_BYTES, number
from jobs.iceberg.partitioning import Partitioning, Values
from jobs.iceberg.statistics import ColumnStatistics, Leaf, leaves
from jobs.iceberg.unusable import unusable
from resources.errors import ConfigurationError

_FORMAT = "write.format.default"


def writes_parquet(properties: Mapping[str, str]) -> bool:
    """Whether the properties make the table's data files Parquet."""
    return properties.get(_FORMAT, "parquet").lower() == "parquet"


@dataclass(frozen=True)
class NewFiles:
    """Where and how new data files of a table are written, by its metadata and properties; travels to Spark's workers.

    Attributes:
        where: the table, for errors.
        storage: the client of the table's file system. May hold secrets: never log it.
        sort: the columns by which rows of a file are sorted, each with its direction and whether nulls are first.
        full: paths of optional structs, and of fields in them, that are required in files of rows without null there.
            Then the fields are stored as columns of a table are, and can be copied into one (`row_groups`).
    """

    where: str
    location: str
    properties: Mapping[str, str]
    schema: Schema
    spec: PartitionSpec
    sort: tuple[tuple[str, str, str], ...]
    storage: FileIO = field(repr=False)
    full: frozenset[tuple[str, ...]] = frozenset()

    @classmethod
    def of(cls, table: Table) -> NewFiles:
        """How new files of this table are written, as it is now.

        Raises:
            ConfigurationError: the table's file format is not Parquet, or a property has a value that it cannot have.
        """
        metadata, where = table.metadata, ".".join(table.name())
        for name, remedy in unusable(metadata.properties):
            raise ConfigurationError(
                f"its property `{name}` is {metadata.properties[name]!r}, which it cannot have",
                where=where,
                remedy=f"{remedy}, by ALTER TABLE … SET TBLPROPERTIES",
            )
        if not writes_parquet(metadata.properties):
            raise ConfigurationError(
                f"its data files are to be {metadata.properties[_FORMAT]}, and batches are landed as Parquet",
                where=where,
                remedy=f"remove the table's property `{_FORMAT}`",
            )
        return cls(
            where,
            metadata.location,
            dict(metadata.properties),
            table.schema(),
            Partitioning.of(table.spec()),
            _sort_columns(table.sort_order(), table.schema()),
            table.io,
        )

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns of a file, with Iceberg's field ids, in Arrow's plain types."""
        return pa.schema([_plain(f, f.nullable) for f in schema_to_pyarrow(self.schema)])

    @cached_property
    def leaves(self) -> list[Leaf]:
        """The Parquet columns of a file."""
        return leaves(self.schema)

    def new_path(self, partition: Values, kind: str = "") -> str:
        """A new unique path; `kind` is a suffix of its name."""
        name = f"{uuid.uuid4()}{kind}.parquet"
        place = load_location_provider(self.location, dict(self.properties))
        if not partition:
            return place.new_data_location(name)
        path = self.spec.partition_to_path(Record(*partition), self.schema)
        # What location providers use of pyiceberg's PartitionKey.
        folders: Any = SimpleNamespace(to_path=lambda: path)
        return place.new_data_location(name, folders)

    @property
    def target_bytes(self) -> int:
        """The target size of a data file."""
        return number(self.properties, TARGET_BYTES)


@dataclass(frozen=True)
class NewFile:
    """A data file that was written, as a task describes it to the run."""

    path: str
    rows: int
    size: int
    partition: Values
    statistics: ColumnStatistics
    splits: tuple[int, ...]


def data_file(file: NewFile, files: NewFiles) -> DataFile:
    """A file as an entry of Iceberg's manifests."""
    kinds, known = _partition_types(files), file.statistics
    # As Iceberg stores them: a transform may return another form of a value.
    values = [None if v is None else from_bytes(k, to_bytes(k, v)) for k, v in zip(kinds, file.partition, strict=True)]
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        column_sizes=known.sizes,
        value_counts=known.values,
        null_value_counts=known.nulls,
        nan_value_counts={},
        lower_bounds=known.lower,
        upper_bounds=known.upper,
        split_offsets=list(file.splits),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    found.spec_id = files.spec.spec_id
    return found


def _partition_types(files: NewFiles) -> list[PrimitiveType]:
    found = [f.field_type for f in files.spec.partition_type(files.schema).fields]
    return [kind for kind in found if isinstance(kind, PrimitiveType)]


def _sort_columns(order: SortOrder, schema: Schema) -> tuple[tuple[str, str, str], ...]:
    """The columns themselves instead of their transforms: all transforms except buckets keep the order of values."""
    return tuple(
        (
            schema.find_column_name(f.source_id) or "",
            "ascending" if f.direction.value == "asc" else "descending",
            "at_start" if f.null_order.value == "nulls-first" else "at_end",
        )
        for f in order.fields
        if not isinstance(f.transform, BucketTransform)
    )


def _plain(field: pa.Field, nullable: bool = True) -> pa.Field:
    """The field without Arrow's storage variants (large, dictionary), with its field id. Nested fields are nullable."""
    return field.with_type(_plain_type(field.type)).with_nullable(nullable)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_field, nullable=False), _plain(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain(f) for f in kind])
    return plain(kind)
