"""Debezium's changes of which some leave large values out, tables that keep those, and what the tables hold."""

from __future__ import annotations

import base64
import itertools
import json
import random
from dataclasses import replace
from typing import Any

from tests.kit.records import Record

COLUMNS = {"id": "long", "body": "string", "raw": "binary", "tags": "array<string>", "n": "long"}
TEXT = "__debezium_unavailable_value"
LEFT_OUT: dict[str, object] = {"body": TEXT, "raw": base64.b64encode(TEXT.encode()).decode(), "tags": [TEXT]}

_EMPTY: dict[str, object] = {"body": None, "raw": None, "tags": []}


def change(key: int, op: str, partition: int = 0, **columns: object) -> Record:
    """Columns that are not named are left out; an insert brings all, empty."""
    row = {"id": key, **(_EMPTY if op == "c" else LEFT_OUT), "n": 0, **columns}
    image = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return Record(partition, key, {"op": op, **image})


_positions = itertools.count(1)


def moved(old: int, new: int, partition: int = 0, to: int | None = None, **columns: object) -> list[Record]:
    """Another key of a row, as Debezium sends it: columns that are not named are left out.

    Args:
        partition: where the delete and its tombstone are. to: where the insert is, if not there.
    """
    position = next(_positions)

    def half(record: Record, header: str, other: int) -> Record:
        assert isinstance(record.value, dict)
        headers = ((header, json.dumps({"id": other}).encode()), ("__debezium.context.taskId", b"0"))
        return replace(record, value={**record.value, "source": {"lsn": position}}, headers=headers)

    inserted = change(new, "c", partition if to is None else to, **{**LEFT_OUT, **columns})
    return [
        half(change(old, "d", partition), "__debezium.newkey", new),
        Record(partition, old, None),
        half(inserted, "__debezium.oldkey", old),
    ]


def without_position(record: Record) -> Record:
    """As a source sends it that does not say where in its log the change stands."""
    if isinstance(record.value, dict):
        return replace(record, value={name: part for name, part in record.value.items() if name != "source"})
    return record


def random_left_out(seed: int, count: int, keys: int, partitions: int) -> list[Record]:
    """Changes of few keys; a delete is followed by a tombstone, as Debezium does it, and after it by any change.

    Rows of which all values are known get another key, too.
    """
    dice = random.Random(seed)
    records: list[Record] = []
    whole, there = set[int](), set[int]()
    for n in range(count):
        key = dice.randrange(keys)
        others = [k for k in range(keys) if k not in there]
        if key in whole and others and dice.random() < 0.3:
            to = dice.choice(others)
            brings = {"tags": ["moved"]} if dice.random() < 0.3 else {}
            records += moved(key, to, key % partitions, to % partitions, n=n, **brings)
            whole, there = whole - {key} | {to}, there - {key} | {to}
            continue
        op = dice.choices(["u", "c", "d"], [8, 1, 2])[0]
        brought: dict[str, object] = {
            "body": dice.choice([f"body {n}", None]),
            "raw": dice.choice([base64.b64encode(b"%d" % n).decode(), None]),
            "tags": dice.choice([[f"a{n}", "b"], []]),
        }
        chosen = {column: value for column, value in brought.items() if op == "c" or dice.random() < 0.3}
        records.append(change(key, op, key % partitions, n=n, **chosen))
        if op == "d":
            records.append(Record(key % partitions, key, None))
        is_whole = op == "c" or (op == "u" and key in whole)
        whole = whole | {key} if is_whole else whole - {key}
        there = there - {key} if op == "d" else there | {key}
    return records


def comparable(row: dict[str, Any]) -> dict[str, object]:
    raw = row["raw"]
    return {
        **row,
        "raw": base64.b64encode(raw).decode() if isinstance(raw, bytes) else raw,
        "tags": list(row["tags"] or []),
    }
