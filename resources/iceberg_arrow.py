"""Changes how pyiceberg (0.12) reads rows, by being imported.

- It makes null lists and maps of structs empty: it builds them again from their offsets alone
  (`ArrowProjectionVisitor`), and offsets know no nulls.
- It refuses files without field ids that have more columns than the table's name mapping names, such as files of Hive.
  Iceberg passes over these columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import pyarrow as reading
from pyiceberg.io.pyarrow import ArrowProjectionVisitor
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping, apply_name_mapping
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType


def _with_nulls(projection: Callable[..., Any]) -> Callable[..., Any]:
    def projected(visitor: ArrowProjectionVisitor, kind: object, values: Any, *parts: Any) -> Any:
        found = projection(visitor, kind, values, *parts)
        if found is None or found.null_count == values.null_count:
            return found
        # The field ids in the type get lost on the way.
        return pc.if_else(values.is_valid(), found, pa.scalar(None, found.type)).view(found.type)

    return projected


def _mapped(schema_without_ids: Schema, name_mapping: NameMapping) -> Schema:
    """The schema of a file without field ids, with those of the mapping; only of what the mapping names."""
    return apply_name_mapping(Schema(*_named(schema_without_ids.fields, name_mapping.root)), name_mapping)


def _named(fields: Iterable[NestedField], mapped: Iterable[MappedField]) -> list[NestedField]:
    known = {name: one for one in mapped for name in one.names if one.field_id is not None}
    return [
        field.model_copy(update={"field_type": _of_named(field.field_type, known[field.name].fields)})
        for field in fields
        if field.name in known
    ]


def _of_named(kind: IcebergType, mapped: Iterable[MappedField]) -> IcebergType:
    if isinstance(kind, StructType):
        return StructType(*_named(kind.fields, mapped))
    if isinstance(kind, ListType):
        (element,) = _named([kind.element_field], mapped)
        return ListType(kind.element_id, element.field_type, kind.element_required)
    if isinstance(kind, MapType):
        key, value = _named([kind.key_field, kind.value_field], mapped)
        return MapType(kind.key_id, key.field_type, kind.value_id, value.field_type, kind.value_required)
    return kind


for _name in ("list", "map"):
    setattr(ArrowProjectionVisitor, _name, _with_nulls(getattr(ArrowProjectionVisitor, _name)))
reading.apply_name_mapping = _mapped  # type: ignore[attr-defined]
