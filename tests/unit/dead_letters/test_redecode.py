"""What becomes of dead letters that are read again, one Arrow batch at a time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from jobs.batch import Batch
from jobs.changes.columns import landing_schema
from jobs.dead_letters.redecode import Redecoder
from jobs.landing.readers import record_reader
from jobs.offsets import OffsetRange, TopicPartition
from jobs.spec.pipeline import PipelineSpec

SPEC = PipelineSpec.model_validate(
    {
        "source": {
            "topics": ["t"],
            "key": {"format": "json", "columns": {"id": "long"}},
            "value": {"format": "json", "envelope": "debezium", "columns": {"id": "long", "amount": "int"}},
        },
        "changes": {"key": {"columns": ["id"]}},
        "tables": [{"kind": "iceberg", "table": "n.t", "mode": "upsert_delete"}],
    }
)
NAMES = ("batchNumber", "i", "key", "value", "op", "kafka", "error", "changed")


def change(op: str, amount: object) -> bytes:
    row = {"id": 1, "amount": amount}
    return json.dumps({"op": op, "before": row, "after": None if op == "d" else row}).encode()


def letters(*given: tuple[bytes | None, str]) -> pa.RecordBatch:
    """Values, each with the message that its letter has."""
    values, messages = zip(*given, strict=True)
    count = len(given)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b'{"id":1}'] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["t"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(10, 10 + count), pa.int64()),
            "timestamp": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * count, pa.timestamp("us", "UTC")),
            "batch": pa.array([7] * count, pa.int64()),
            "i": pa.array(range(3, 3 + count), pa.int64()),
            "stage": pa.array(["value"] * count),
            "kind": pa.array(["range"] * count),
            "message": pa.array(messages),
        }
    )


def tried(*given: tuple[bytes | None, str]) -> list[dict[str, Any]]:
    # As in a retry: the place of a letter is its own, whatever the ranges say.
    batch = Batch("p", 9, "c", None, {TopicPartition("t", 0): OffsetRange(0, 0)}, {}, 0, "h")
    reader = record_reader(SPEC, batch, landing_schema(SPEC))
    found: list[dict[str, Any]] = Redecoder(reader, NAMES).read(letters(*given)).to_pylist()
    return found


def test_each_letter_is_its_own() -> None:
    (bad,) = tried((change("u", 2**40), ""))
    was = bad["error"]["message"]
    assert "amount" in was
    good, deleted, same, other, left_out = tried(
        (change("u", 5), was),
        (change("d", 5), was),
        (change("u", 2**40), was),
        (change("u", "secret"), was),
        (None, was),
    )
    assert [(r["batchNumber"], r["i"], r["kafka"]["offset"]) for r in (good, left_out)] == [(7, 3, 10), (7, 7, 14)]
    assert (good["op"], good["key"], good["value"]["amount"], good["error"]) == ("update", {"id": 1}, 5, None)
    assert (deleted["op"], deleted["key"], deleted["error"]) == ("delete", {"id": 1}, None)
    assert [r["changed"] for r in (good, deleted, same, other, left_out)] == [True, True, False, True, True]
    assert (same["op"], same["key"], same["value"], same["error"]["message"]) == (None, {"id": 1}, None, was)
    assert (other["error"]["kind"], other["error"]["value"]) == ("type", change("u", "secret"))
    assert "secret" not in other["error"]["message"]
    # A tombstone after a Debezium delete is no row: it was counted as a letter, so it stays one and says why.
    assert (left_out["op"], left_out["value"], left_out["error"]["kind"]) == (None, None, "left_out")
    assert left_out["error"]["key"] == b'{"id":1}'
