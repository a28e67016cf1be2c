"""kill -9 of what people do by hand: replays, also as Dagster's backfill, retries, resets of offsets, maintenance.

What dies is the real command with its Dagster run. The next run goes on, the command can be given again, and every
table is as if nothing had died.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs import failpoints
from jobs.dead_letters.listing import summary
from tests.crash.conftest import NewLog
from tests.kit import model
from tests.kit.crash_log import RUN, Log
from tests.kit.dead_letters import LARGE
from tests.kit.kinds import KINDS
from tests.kit.records import COLUMNS, Record, bootstrap, produce, random_changes
from tests.kit.story import targets

pytestmark = pytest.mark.crash

# Of a batch that revises others, in the landing and in the merges of each kind.
REVISION = list(dict.fromkeys([*failpoints.REVISION, *(kind.revised or kind.written for kind in KINDS.values())]))


def hours_ago(hours: int) -> datetime:
    return datetime.now(UTC) - timedelta(hours=hours)


def hour(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H}"


@pytest.mark.parametrize("way", ["batches", "backfill"])
@pytest.mark.parametrize(("kind", "point"), [(kind, point) for kind in KINDS for point in KINDS[kind].replayed])
def test_killed_replay(kind: str, point: str, way: str, logs: Callable[..., Log]) -> None:
    """In that of the last table; the next run goes on, and the replay can be repeated."""
    log = logs(kind)
    log.grow()
    log.finish("before the replay")
    # By hours it is a run of Dagster's that replays, as a backfill does.
    command = ("replay", "--batches", "1-3") if way == "batches" else ("replay", "--from", hour(hours_ago(1)))
    log.kill(point, len(log.tables), command)
    log.grow()
    log.finish(point)
    log.do(*command)
    log.check(point)


@pytest.mark.parametrize("way", ["offsets", "backfill"])
@pytest.mark.parametrize("point", REVISION)
def test_killed_replay_from_kafka(point: str, way: str, new_log: NewLog) -> None:
    """Another file reads the records of an hour in which nothing was landed: each in its place, once."""
    log = new_log(targets())
    log.edit(source={**log.source, **narrow("int")})
    old, then = whole(random_changes(1, 60, 20, 2)), hours_ago(2)
    produce(bootstrap(log.connections), log.topic, old, timestamp=int(then.timestamp() * 1000))
    log.records += old
    log.do(*RUN)
    log.produce(whole(random_changes(2, 60, 20, 2)))
    log.do(*RUN)
    log.edit(source={**log.source, **narrow("long")})
    places = [part for n in (0, 1) for part in ("--kafka-offsets", f"{log.topic}-{n}=0")]
    command = ("replay", *places) if way == "offsets" else ("replay", "--from", hour(then), "--to", hour(then))
    log.kill(point, command=command)
    log.produce(whole(random_changes(3, 30, 20, 2)))
    log.do("replay", *places)
    log.finish(point)
    assert sum(group.records for group in summary(log.pipeline)) == model.bad(log.records)


@pytest.mark.parametrize("point", REVISION)
def test_killed_retry(point: str, new_log: NewLog) -> None:
    """The next retry goes on: every dead letter that can be read now is in every table, once and in its place."""
    log = new_log(targets())
    log.edit(source={**log.source, **narrow("int")})
    for seed in (1, 2):
        log.produce(whole(random_changes(seed, 60, 20, 2)))
        log.do(*RUN)
    log.edit(source={**log.source, **narrow("long")})
    log.kill(point, command=("dead-letters", "retry"))
    log.produce(whole(random_changes(3, 30, 20, 2)))
    log.do("dead-letters", "retry")
    log.finish(point)
    assert sum(group.records for group in summary(log.pipeline)) == model.bad(log.records)


def narrow(kind: str) -> dict[str, object]:
    """A source whose `amount` is of this type."""
    return {"value": {"format": "json", "columns": {**COLUMNS, "amount": kind}}}


def whole(records: Sequence[Record]) -> list[Record]:
    """The records with whole amounts, some of them too large for an `int`."""
    made = []
    for n, record in enumerate(records):
        value: Any = record.value
        if isinstance(value, dict) and "amount" in value:
            value = {**value, "amount": LARGE if n % 7 == 0 else n}
        made.append(Record(record.partition, record.key, value))
    return made


SKIP = ("offsets", "reset", "--to", "latest", "--yes")
IN_A_RUN = [kind.committed for kind in KINDS.values()]


@pytest.mark.parametrize("point", ["land.published", *IN_A_RUN])
def test_killed_reset(point: str, new_log: NewLog) -> None:
    """When its batch is landed, or in the run that brings it to the tables: what it skips is in none of them."""
    log = new_log(targets())
    log.grow()
    log.do(*RUN)
    produce(bootstrap(log.connections), log.topic, random_changes(99, 40, 30, 2))
    if point not in IN_A_RUN:
        log.kill(point, command=SKIP)
    log.do(*SKIP)
    log.grow()
    if point in IN_A_RUN:
        log.kill(point)
    log.finish(point)


# Batches that every table has may go at once, and so may older snapshots; every file and manifest is worth rewriting.
AT_ONCE = {
    "landed": {"keep_days": 1e-9},
    "compaction": {"min_input_files": 2},
    "manifests": {"min_count": 2},
    "snapshots": {"keep_last": 1, "keep_days": 1e-9},
}
# Only of tables that are merged into.
COMPACTION = ("maintenance.begun", "maintenance.written", "maintenance.published")
ONCE = ("maintenance.forgotten", "maintenance.landed", *COMPACTION, "maintenance.clean_up")


@pytest.fixture(scope="module")
def maintained(new_log: NewLog) -> Log:
    """The landed batches, two Iceberg tables, and one of each other kind."""
    tables = [t for t in targets("append", "upsert_delete") if t.mode == "upsert_delete" or t.kind.name == "iceberg"]
    return new_log(tables, maintenance=AT_ONCE)


@pytest.mark.parametrize("point", failpoints.MAINTENANCE)
def test_killed_maintenance(point: str, maintained: Log) -> None:
    """In that of the landed batches, and of the last table; the next run and the next maintenance go on."""
    log = maintained
    for turn in [1] if point in ONCE else [1, 3]:
        for _ in range(2):
            log.grow()
            log.do(*RUN)
        log.kill(point, turn, ("maintain",))
        log.grow()
        log.finish(point)
        log.do("maintain", why=point)
        log.check(point)
