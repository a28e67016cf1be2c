"""The independent answer: what a table must hold, computed from the records alone, without any product code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

from tests.kit.records import Record

Row = tuple[int, str, float]
USUAL = ("id", "name", "amount")


def is_good(record: Record) -> bool:
    return record.key is not None and not isinstance(record.value, str)


@overload
def expected(records: Sequence[Record], mode: str) -> list[Row]: ...


@overload
def expected(records: Sequence[Record], mode: str, columns: Sequence[str]) -> list[tuple[object, ...]]: ...


def expected(records: Sequence[Record], mode: str, columns: Sequence[str] = USUAL) -> Any:
    """Sorted rows (by default id, name, amount) of a table of this mode after all these records."""
    rows: dict[int, list[tuple[Any, ...]]] = {}
    for record in filter(is_good, records):
        assert record.key is not None
        if not _is_delete(record):
            before = rows.get(record.key, []) if mode in ("append", "delete") else []
            rows[record.key] = [*before, _row(record, columns)]
        elif mode in ("upsert_delete", "delete"):
            rows.pop(record.key, None)
    return sorted_rows(row for many in rows.values() for row in many)


def expected_by(order: str, records: Iterable[Record], mode: str) -> list[Row]:
    """The same with a column that orders changes: an older one never wins, equal ones go by arrival, and null is older
    than any. A tombstone has no order, and no effect."""
    newest: dict[int, tuple[bool, Any]] = {}
    rows: dict[int, list[tuple[Any, Any]]] = {}
    for record in records:
        if not is_good(record) or not isinstance(record.value, dict):
            continue
        assert record.key is not None
        value, key = record.value[order], record.key
        version, known = (value is not None, value or 0), newest.get(key, (False, 0))
        if _is_delete(record) and mode == "delete":
            rows[key] = [one for one in rows.get(key, []) if one[0] > version]
            newest[key] = max(known, version)
        elif version < known or (_is_delete(record) and mode == "upsert"):
            continue
        elif mode == "delete":
            rows[key] = [*rows.get(key, []), (version, _row(record, USUAL))]
        else:
            rows[key] = [] if _is_delete(record) else [(version, _row(record, USUAL))]
            newest[key] = version
    return sorted_rows(row for many in rows.values() for _, row in many)


def sorted_rows(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """In one order whatever is null."""
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def with_left_out(records: Sequence[Record], left_out: Mapping[str, object], mode: str) -> dict[int, dict[str, object]]:
    """Rows by id of a table of one row a key, after Debezium's changes of which some leave out large values.

    Args:
        left_out: column to what stands there for a value that the change has not touched.
    """
    table: dict[int, dict[str, object]] = {}
    gone: dict[int, dict[str, object]] = {}
    for r in records:
        if not isinstance(r.value, dict):
            continue
        assert r.key is not None
        if r.value["op"] == "d":
            gone[r.key] = table.get(r.key, {})
            if mode == "upsert_delete":
                table.pop(r.key, None)
            continue
        # A row that was moved has the values that stood under its old key.
        old = [json.loads(key)["id"] for name, key in r.headers if name == "__debezium.oldkey"]
        before, after = gone[old[0]] if old else table.get(r.key, {}), r.value["after"]
        assert isinstance(after, dict)
        table[r.key] = {
            column: before.get(column) if column in left_out and value == left_out[column] else value
            for column, value in after.items()
        }
    return table


def bad(records: Sequence[Record]) -> int:
    return sum(not is_good(r) for r in records)


def _is_delete(record: Record) -> bool:
    return record.value is None or (isinstance(record.value, dict) and record.value["op"] == "d")


def _row(record: Record, columns: Sequence[str]) -> tuple[object, ...]:
    assert isinstance(record.value, dict)
    return tuple(record.value.get(column) for column in columns)
