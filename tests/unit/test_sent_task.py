"""What a task takes along to Spark's workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from jobs.spark.sent_task import SentTask


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
    sent = pickle.loads(pickle.dumps(SentTask(_Named(schema))))
    assert "_lazy_id_to_field" in vars(schema)
    [row] = sent([])
    assert row.to_pydict() == {"name": ["id"]}
    assert sent.task.schema == schema
