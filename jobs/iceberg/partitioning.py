"""Groups rows by their partition of an Iceberg table. Pure over Arrow data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform, VoidTransform, YearTransform
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType, UUIDType

from jobs.schema.own_values import stored
from jobs.schema.types import as_integers

Values = tuple[Any, ...]
"""A partition: the value of each field of the partition spec, as in Iceberg's metadata (days, microseconds, …)."""

# Python's calendar, which pyiceberg uses, ends with the year 9999; numpy's does not.
_CALENDAR: dict[type, str] = {YearTransform: "Y", MonthTransform: "M"}


# Characters of a folder's name. File systems allow 255, and object stores 1,024 for a whole path.
_LONGEST = 200


class Partitioning(PartitionSpec):
    """A partition spec that also makes paths for times that Python cannot represent, and for long values. Any path
    does: readers take the partition from metadata."""

    @classmethod
    def of(cls, spec: PartitionSpec) -> Partitioning:
        return cls(*spec.fields, spec_id=spec.spec_id)

    def partition_to_path(self, data: Record, schema: Schema) -> str:
        try:
            path = super().partition_to_path(data, schema)
        except OverflowError:
            path = "/".join(urlencode({field.name: data[n]}) for n, field in enumerate(self.fields))
        return "/".join(map(_cut, path.split("/")))


def uuid_partitions(table: Table) -> list[str]:
    """The partition fields that are made of UUIDs, which Spark takes for text: it groups rows by other buckets."""
    types = table.schema()
    fields = (field for field in table.spec().fields if not isinstance(field.transform, VoidTransform))
    return [field.name for field in fields if isinstance(types.find_type(field.source_id), UUIDType)]


def _cut(folder: str) -> str:
    """A folder's name, which is encoded as in an address, without half of an encoded character."""
    return folder if len(folder) <= _LONGEST else re.sub("%.?$", "", folder[:_LONGEST])


def by_partition(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[Values, pa.Table]]:
    """The partitions of the rows, each with its rows in their order.

    pyiceberg applies the transforms, to distinct values only: so all of Iceberg's transforms are supported.
    """
    if spec.is_unpartitioned():
        yield (), rows
        return
    place, found = np.zeros(len(rows), np.int64), [()]  # type: tuple[Any, list[Values]]
    for field in spec.fields:
        if isinstance(field.transform, VoidTransform):  # what format version 1 leaves of a removed field
            found = [(*partition, None) for partition in found]
            continue
        kind = schema.find_field(field.source_id).field_type
        assert isinstance(kind, PrimitiveType), "only single values are partitioned by"
        column = at(rows, schema.find_column_name(field.source_id) or "")
        distinct = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
        values = _transformed(field, kind, distinct.dictionary)
        number = {value: n for n, value in enumerate(dict.fromkeys(values))}
        own = np.array([number[value] for value in values], np.int64)[distinct.indices.to_numpy(zero_copy_only=False)]
        # Number only the combinations that occur, so that numbers do not overflow with many fields.
        pairs, place = np.unique(place * len(number) + own, return_inverse=True)
        names = list(number)
        found = [(*found[pair // len(names)], names[pair % len(names)]) for pair in pairs.tolist()]
    for n, partition in enumerate(found):
        yield partition, rows.filter(pa.array(place == n)) if len(found) > 1 else rows


def _transformed(field: PartitionField, kind: PrimitiveType, values: pa.Array) -> list[Any]:
    if unit := _CALENDAR.get(type(field.transform)):
        times = values.to_numpy(zero_copy_only=False).astype(f"datetime64[{unit}]").astype(np.int64)
        return pa.array(times, mask=values.is_null().to_numpy(zero_copy_only=False)).to_pylist()  # type: ignore[no-any-return]
    transform = field.transform.transform(kind)
    return [transform(value) for value in as_integers(values).to_pylist()]


def at(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """The column, or the field of a struct, at this dotted path, as it is stored."""
    head, *parts = [name] if name in rows.column_names else name.split(".")
    return stored(pc.struct_field(rows[head], parts) if parts else rows[head])
