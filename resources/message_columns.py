"""Kafka's messages as Arrow columns. Converted by column: a loop over messages would cost as much as reading them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Message

from resources.kafka_records import HEADERS, INSTANT, WantedHeaders, records_schema

Numbers = npt.NDArray[np.int64]

# Milliseconds of the years 1 to 9999, as every time zone has them: Python shows times in the machine's. A producer may
# give a record any number, such as microseconds.
_YEARS = (-62_135_510_400_000, 253_402_214_399_999)


def in_columns(
    messages: Sequence[Message], topics: pa.Array, partitions: pa.Array, offsets: Numbers, headers: WantedHeaders
) -> pa.RecordBatch:
    """The columns of `resources.kafka_records.records_schema`.

    Args:
        topics, partitions, offsets: of each message.
    """
    milliseconds = np.fromiter([message.timestamp()[1] for message in messages], np.int64, len(messages))
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        topics,
        partitions,
        pa.array(offsets),
        pa.array(np.clip(milliseconds, *_YEARS) * 1000).cast(INSTANT),
    ]
    if headers:
        columns.append(_headers(headers, messages))
    return pa.RecordBatch.from_arrays(columns, schema=records_schema(headers))


def offsets_of(messages: Sequence[Message]) -> Numbers:
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))


def offsets_of_one(messages: Sequence[Message]) -> Numbers:
    """The offsets of messages of one topic-partition: they ascend, so if as many lie between the first and the last as
    there are messages, these have all of them."""
    if not messages:
        return offsets_of(messages)
    first, last = offsets_of([messages[0], messages[-1]]).tolist()
    return np.arange(first, last + 1) if last - first == len(messages) - 1 else offsets_of(messages)


def _headers(wanted: Literal[True] | frozenset[str], messages: Sequence[Message]) -> pa.Array:
    found: list[Any] = list(map(Message.headers, messages))  # declared as also an object, which producers may give
    if not any(found):
        return pa.nulls(len(found), HEADERS)
    return pa.array([_wanted(wanted, headers) if headers else None for headers in found], HEADERS)


def _wanted(wanted: Literal[True] | frozenset[str], headers: Any) -> list[dict[str, object]] | None:
    return [{"key": key, "value": value} for key, value in headers if wanted is True or key in wanted] or None
