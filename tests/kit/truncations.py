"""A log with truncations, and the rows that are left of it, computed from the log alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.kit.model import Row
from tests.kit.records import Record

COLUMNS = {"id": "long", "name": "string not null", "amount": "double", "lsn": "long"}
VALUE = {
    "format": "json",
    "envelope": {"kind": "debezium", "metadata": {"lsn": "source.lsn"}, "truncates": "apply"},
    "columns": COLUMNS,
}
CHANGES = {"key": {"columns": ["id"]}, "order_by": "lsn"}


def change(dice: random.Random, lsn: int) -> Record:
    """A random change, of keys that move between partitions."""
    key, op = dice.randrange(12), dice.choice("cuud")
    row = {"id": key, "name": f"n{lsn}", "amount": float(lsn)}
    before, after = (row, None) if op == "d" else (None, row)
    source = {"lsn": None if lsn % 17 == 0 else lsn}
    return Record(dice.randrange(2), key, {"op": op, "before": before, "after": after, "source": source})


def truncation(partition: int, lsn: int) -> Record:
    return Record(partition, None, {"op": "t", "before": None, "after": None, "source": {"lsn": lsn}})


def expected(records: Sequence[Record], mode: str) -> list[Row]:
    """Computed from the log alone: the newest change of each key, of those that no truncation is newer than."""
    values = [r.value for r in records if isinstance(r.value, dict)]
    lsns = [(v, int(v["source"]["lsn"] or -1)) for v in values]  # type: ignore[index]
    floor = max((lsn for v, lsn in lsns if v["op"] == "t"), default=-1)
    held: dict[int, list[tuple[int, Row]]] = {}
    deleted: dict[int, int] = {}
    for value, lsn in lsns:
        row = value["after"] or value["before"]
        if not isinstance(row, dict) or lsn < floor:
            continue
        key = row["id"]
        mine = held.setdefault(key, [])
        newest = max([deleted.get(key, -1), *(known for known, _ in mine)])
        one = (lsn, (key, row["name"], row["amount"]))
        if mode == "upsert_delete":
            if lsn >= newest:
                deleted[key] = lsn
                held[key] = [] if value["op"] == "d" else [one]
        elif value["op"] == "d":
            deleted[key] = max(lsn, deleted.get(key, -1))
            held[key] = [kept for kept in mine if kept[0] > lsn]
        elif lsn >= deleted.get(key, -1):
            mine.append(one)
    return sorted(row for many in held.values() for _, row in many)
