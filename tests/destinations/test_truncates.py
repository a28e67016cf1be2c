"""A truncation takes away what is older by its order, whatever comes when, and however the log is cut into batches."""

from __future__ import annotations

import random

import pytest

from tests.destinations.conftest import MakeStory
from tests.kit.model import Row
from tests.kit.records import Record
from tests.kit.story import Story, Target, on_targets

COLUMNS = {"id": "long", "name": "string not null", "amount": "double", "lsn": "long"}
VALUE = {
    "format": "json",
    "envelope": {"kind": "debezium", "metadata": {"lsn": "source.lsn"}, "truncates": "apply"},
    "columns": COLUMNS,
}
CHANGES = {"key": {"columns": ["id"]}, "order_by": "lsn"}


def change(dice: random.Random, lsn: int) -> Record:
    """Of keys that move between partitions."""
    key, op = dice.randrange(12), dice.choice("cuud")
    row = {"id": key, "name": f"n{lsn}", "amount": float(lsn)}
    before, after = (row, None) if op == "d" else (None, row)
    source = {"lsn": None if lsn % 17 == 0 else lsn}
    return Record(dice.randrange(2), key, {"op": op, "before": before, "after": after, "source": source})


def truncation(partition: int, lsn: int) -> Record:
    return Record(partition, None, {"op": "t", "before": None, "after": None, "source": {"lsn": lsn}})


def chapters() -> list[list[Record]]:
    """Changes that come late or early by up to 40; truncations among them, one that comes after a larger one."""
    dice = random.Random(7)
    late = sorted((lsn + dice.randrange(40), lsn) for lsn in range(1, 150))
    log = [change(dice, lsn) for _, lsn in late]
    return [
        log[:40],
        [*log[40:60], truncation(0, 45), *log[60:70]],
        log[70:100],
        [truncation(1, 90), *log[100:120], truncation(0, 60)],
        log[120:],
    ]


def expected(records: list[Record], mode: str) -> list[Row]:
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


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    """Each chapter is a batch; the key comes from the record's key, which a truncation has not."""
    story = new_story(2, columns=COLUMNS, source={"value": VALUE}, changes=CHANGES)
    for chapter in chapters():
        story.tell(*chapter)
        (landed,) = story.land()
        truncations = sum(r.key is None for r in chapter)
        assert (landed.counts.quarantined, landed.counts.filtered) == (0, truncations)
    assert [b.watermark.truncated_below for b in story.engine.pipeline.intermediate.landed().batches] == [
        None, 45, 45, 90, 90,
    ]  # fmt: skip
    return story


@on_targets("upsert_delete", "delete", always="upsert_delete")
def test_truncations_are_applied_however_the_log_is_cut(target: Target, story: Story) -> None:
    table, told = story.table(target), [record for chapter in chapters() for record in chapter]
    for coalesced, first, last in ((1, 1, 1), (2, 2, 2), (1, 1, 3), (1, 1, 5)):
        table.merge_some(coalesced)
        done = table.destination.committed()
        assert done
        reached = sum(map(len, chapters()[: done.batch_number]))
        assert table.rows() == expected(told[:reached], target.mode), done.batch_number
        assert table.replay(first, last)
        assert table.rows() == expected(told[:reached], target.mode), (first, last)
    assert table.verify().wrong == []
    at_once = story.table(target)
    assert at_once.merge()
    assert at_once.rows() == expected(told, target.mode)
