"""What a task takes along to Spark's workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, PrivateAttr, RootModel
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, Transform, TruncateTransform, VoidTransform
from pyiceberg.types import DecimalType, FixedType, ListType, LongType, NestedField, StructType

from tests.kit.arrow import copied


@dataclass(frozen=True)
class _Named:
    schema: Schema

    def __call__(self, _: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"name": self.schema.column_names})


_SENT = list[Schema]()


class _Read(LongType):
    """A type during whose pickling another part of the run reads the schema that it is in."""

    def __getstate__(self) -> dict[Any, Any]:
        for schema in _SENT:
            schema.find_field(1)
        return super().__getstate__()


def test_a_schema_may_be_read_while_it_is_sent() -> None:
    """Threads of a run share a table's metadata, and pyiceberg keeps what it computes from a schema in the schema."""
    schema = Schema(NestedField(1, "id", _Read()))
    _SENT[:] = [schema]
    sent = copied(_Named(schema))
    assert "_lazy_id_to_field" in vars(schema)
    [row] = sent([])
    assert row.to_pydict() == {"name": ["id"]}
    assert sent.schema == schema


def test_types_and_transforms_of_pyiceberg_stay_what_they_are() -> None:
    """Types with the same arguments are one object to pyiceberg, and transforms keep theirs in private attributes."""
    inside = StructType(NestedField(6, "x", ListType(7, DecimalType(5, 1))))
    kinds = [DecimalType(10, 2), DecimalType(38, 9), FixedType(5), FixedType(9), inside]
    transforms: list[Transform[Any, Any]] = [
        BucketTransform(4),
        BucketTransform(9),
        TruncateTransform(3),
        VoidTransform(),
    ]
    schema = Schema(*(NestedField(n, f"c{n}", kind) for n, kind in enumerate(kinds, 1)))
    spec = PartitionSpec(*(PartitionField(1, n, one, f"p{n}") for n, one in enumerate(transforms, 1000)))
    given = repr((schema, spec))
    assert repr(copied((schema, spec))) == given
    assert repr((schema, spec)) == given, "types are shared, so these could change as well"


class _Counted(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str
    _place: int = PrivateAttr(1)

    @cached_property
    def parts(self) -> list[str]:
        return [*self.name]


class _Below(_Counted):
    more: int = 0


class _Names(RootModel[list[str]]):
    _place: int = PrivateAttr(1)

    @cached_property
    def first(self) -> str:
        return self.root[0]


def test_a_model_keeps_all_but_what_it_has_computed() -> None:
    below, names = _Below.model_validate({"name": "ab", "more": 2, "other": [3]}), _Names(["a", "b"])
    below._place = names._place = 7
    assert (below.parts, names.first) == (["a", "b"], "a")
    model, root = copied((below, names))
    assert {"parts", "first"}.isdisjoint({*vars(model), *vars(root)})
    assert (model, root) == (below, names)
    assert (model.model_extra, model.model_fields_set) == ({"other": [3]}, below.model_fields_set)
    assert (model._place, root._place) == (7, 7)
    assert (model.parts, root.first) == (["a", "b"], "a")
