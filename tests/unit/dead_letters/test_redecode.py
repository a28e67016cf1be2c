"""What becomes of dead letters that are read again, one Arrow batch at a time."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from jobs.changes.columns import landing_schema
from jobs.dead_letters.redecode import Redecoder
from jobs.landing.readers import record_reader
from jobs.offsets import OffsetRange
from resources.kafka_records import HEADERS
from tests.kit import specs
from tests.kit.arrow import kafka_records
from tests.kit.batches import P0, batch

SPEC = specs.spec(
    specs.table(mode="upsert_delete"),
    columns={"id": "long", "amount": "int"},
    key=specs.ID,
    value={"envelope": "debezium"},
)
NAMES = ("batchNumber", "i", "key", "value", "op", "kafka", "error", "changed")


def change(op: str, amount: object) -> bytes:
    row = {"id": 1, "amount": amount}
    return json.dumps({"op": op, "before": row, "after": None if op == "d" else row}).encode()


def dead_letters(*given: tuple[bytes | None, str]) -> pa.RecordBatch:
    """Values, each with the message that its dead letter has."""
    records = kafka_records(
        *((b'{"id":1}', value) for value, _ in given), places=[("t", 0, 10 + n) for n in range(len(given))]
    )
    known = {
        "batch": pa.array([7] * len(given), pa.int64()),
        "i": pa.array(range(3, 3 + len(given)), pa.int64()),
        "stage": ["value"] * len(given),
        "kind": ["range"] * len(given),
        "message": [message for _, message in given],
        "some_headers": pa.nulls(len(given), HEADERS),
    }
    return pa.RecordBatch.from_pydict(dict(zip(records.schema.names, records.columns, strict=True)) | known)


def tried(*given: tuple[bytes | None, str]) -> list[dict[str, Any]]:
    # As in a retry: the place of a letter is its own, whatever the ranges say.
    reader = record_reader(SPEC, batch(9, {P0: OffsetRange(0, 0)}), landing_schema(SPEC))
    found: list[dict[str, Any]] = Redecoder(reader, NAMES).read(dead_letters(*given)).to_pylist()
    return found


def test_each_dead_letter_is_judged_by_itself() -> None:
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
    # A tombstone after a Debezium delete is no row: it was counted as a dead letter, so it stays one, with the reason.
    assert (left_out["op"], left_out["value"], left_out["error"]["kind"]) == (None, None, "left_out")
    assert left_out["error"]["key"] == b'{"id":1}'
