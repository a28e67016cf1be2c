"""The independent answer: what a table must hold, computed from the records alone, without any product code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.kit.records import Record

Row = tuple[int, str, float]


def is_good(record: Record) -> bool:
    return record.key is not None and not isinstance(record.value, str)


def expected(records: Sequence[Record], mode: str) -> list[Row]:
    """Sorted rows (id, name, amount) of a table of this mode after all these records."""
    good = [r for r in records if is_good(r)]
    if mode == "append":
        return sorted(_row(r) for r in good if not _is_delete(r))
    if mode == "delete":
        rows: dict[int, list[Row]] = {}
        for r in good:
            assert r.key is not None
            rows[r.key] = [] if _is_delete(r) else [*rows.get(r.key, []), _row(r)]
        return sorted(row for many in rows.values() for row in many)
    table: dict[int, Row] = {}
    for r in good:
        assert r.key is not None
        if not _is_delete(r):
            table[r.key] = _row(r)
        elif mode == "upsert_delete":
            table.pop(r.key, None)
    return sorted(table.values())


def with_left_out(records: Sequence[Record], left_out: Mapping[str, object], mode: str) -> dict[int, dict[str, object]]:
    """Rows by id of a table of one row a key, after Debezium's changes of which some leave out large values.

    Args:
        left_out: column to what stands there for a value that the change has not touched.
    """
    table: dict[int, dict[str, object]] = {}
    for r in records:
        if not isinstance(r.value, dict):
            continue
        assert r.key is not None
        if r.value["op"] == "d":
            if mode == "upsert_delete":
                table.pop(r.key, None)
            continue
        before, after = table.get(r.key, {}), r.value["after"]
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


def _row(record: Record) -> Row:
    value = record.value
    assert isinstance(value, dict)
    return int(str(value["id"])), str(value["name"]), float(str(value["amount"]))
