"""What decoders and readers get: columns as Arrow types, values as bytes, and Kafka's records as Spark has them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import pyarrow as pa

from jobs.schema.types import parse_columns
from jobs.spark.sent_task import SentTask

T = TypeVar("T")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row_type(columns: Mapping[str, str]) -> pa.StructType:
    return pa.struct(list(parse_columns(columns)))


def as_bytes(value: object) -> bytes | None:
    """A value as JSON; bytes stay as they are, and None is a tombstone."""
    return value if isinstance(value, bytes | None) else json.dumps(value).encode()


def raw_values(*given: object) -> pa.Array:
    return pa.array([as_bytes(one) for one in given], pa.binary())


def kafka_records(
    *pairs: tuple[object, object], places: Sequence[tuple[str, int, int]] | None = None
) -> pa.RecordBatch:
    """Records of (key, value); one after the other in t-0, unless topic, partition and offset are given."""
    at = places or [("t", 0, n) for n in range(len(pairs))]
    return pa.RecordBatch.from_pydict(
        {
            "key": raw_values(*(key for key, _ in pairs)),
            "value": raw_values(*(value for _, value in pairs)),
            "topic": pa.array([topic for topic, _, _ in at], pa.string()),
            "partition": pa.array([partition for _, partition, _ in at], pa.int32()),
            "offset": pa.array([offset for _, _, offset in at], pa.int64()),
            "timestamp": pa.array([NOON] * len(pairs), pa.timestamp("us", "UTC")),
        }
    )


def copied(made: T) -> T:
    """A copy of the object, as a Spark worker gets it."""
    sent: Any = pickle.loads(pickle.dumps(SentTask(cast(Any, made))))
    found: T = sent.task
    return found
