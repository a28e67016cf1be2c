"""When a batch has too many bad records, how recovered ones are counted, and what the dead-letter topic gets."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pydantic import ValidationError

from jobs.batch import Counts
from jobs.dead_letters.dead_letter import DeadLetter
from jobs.dead_letters.topic import _landed, to_message
from jobs.spec.dead_letters import DeadLetters


@pytest.mark.parametrize(
    ("limits", "bad", "read", "stops"),
    [
        ({}, 1000, 1000, False),
        ({"max_records": 5}, 5, 5, False),
        ({"max_records": 5}, 6, 1_000_000, True),
        ({"max_share": 0.1}, 10, 100, False),
        ({"max_share": 0.1}, 11, 100, True),
        ({"max_share": 0.1}, 99, 99, False),  # too few records to judge by their share
        ({"max_share": 0.1, "share_from": 2}, 1, 2, True),
        ({"max_share": 0.1, "max_records": 100}, 50, 200, True),
    ],
)
def test_limits(limits: dict[str, float], bad: int, read: int, stops: bool) -> None:
    assert bool(DeadLetters.model_validate(limits).refused(bad, read)) == stops


@pytest.mark.parametrize("limits", [{"max_share": 1}, {"max_share": 0}, {"max_records": 0}, {"topic": "a b"}])
def test_limits_that_say_nothing_are_refused(limits: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DeadLetters.model_validate(limits)


def test_recovered_dead_letters_count_as_landed() -> None:
    counts = Counts(read=10, landed=6, quarantined=3, filtered=1)
    assert counts.with_recovered(2) == Counts(read=10, landed=8, quarantined=1, filtered=1)
    assert counts.with_recovered(2).balanced
    assert Counts(read=3, landed=1, skipped=2).balanced


def test_message_is_the_record_with_headers_of_kafka_connect() -> None:
    at = datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
    one = DeadLetter("lake.t", "orders", 3, 42, at, 7, 1, "transform", "CAST", "column a: no number", b"k", None)
    message = to_message("shop", one)
    assert (message.key, message.value, message.timestamp) == (b"k", None, 1714979289123)
    assert dict(message.headers) == {
        "__connect.errors.topic": b"orders",
        "__connect.errors.partition": b"3",
        "__connect.errors.offset": b"42",
        "__connect.errors.connector.name": b"shop",
        "__connect.errors.task.id": b"0",
        "__connect.errors.stage": b"TRANSFORMATION",
        "__connect.errors.class.name": b"batchmerge",
        "__connect.errors.exception.class.name": b"CAST",
        "__connect.errors.exception.message": b"column a: no number",
    }


def test_message_has_the_headers_that_name_its_schemas() -> None:
    """Nobody could decode it otherwise. The others were perhaps not even read."""
    place = {"topic": "t", "partition": 0, "offset": 1, "timestamp": None, "batch": 1, "i": 0}
    error = {"stage": "value", "kind": "schema", "message": "unknown", "key": b"k", "value": b"v"}
    headers = [{"key": "trace", "value": b"x"}, {"key": "__value_schema_id", "value": b"\1id"}]
    rows = [{**place, **error, "headers": headers}, {**place, **error, "headers": None}]
    kinds = pa.RecordBatch.from_pylist(rows)
    messages = [dict(message.headers) for message in _landed("shop", [kinds])]
    assert [message.get("__value_schema_id") for message in messages] == [b"\1id", None]
    assert all("trace" not in message and len(message) >= 9 for message in messages)
