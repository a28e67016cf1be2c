"""kill -9 of the Dagster run at every boundary of every kind and mode: the next run goes on, and no row is lost or
doubled.

What dies is `batchmerge run`, the process of run and steps on a real Dagster instance. A boundary that a table does not
reach fails its test, and one that no test names fails `tests/unit/test_crash_matrix.py`. The log of a pipeline grows
from kill to kill, so that each also meets what the ones before left.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import get_args

import pytest

from jobs import failpoints
from jobs.spec.tables import Mode
from resources.kafka_groups import group_offsets
from tests.crash.conftest import NewLog
from tests.kit import model
from tests.kit.crash_log import RUN, Log, merge_points
from tests.kit.dead_letters import read_all
from tests.kit.events import check_all_published, check_groups, check_repeated, events
from tests.kit.kinds import KINDS, runnable
from tests.kit.project import Project
from tests.kit.records import COLUMNS, Record, random_changes
from tests.kit.rest_catalog import rest_connections
from tests.kit.story import Target, targets
from tests.kit.truncations import CHANGES, VALUE, change, expected, truncation

pytestmark = pytest.mark.crash

# Only a run that finds another's lease reaches it.
TAKEN_OVER = "clickhouse.taken_over"


@pytest.mark.parametrize(("kind", "point"), [(kind, point) for kind in KINDS for point in merge_points(kind)])
def test_killed_merge(kind: str, point: str, logs: Callable[..., Log]) -> None:
    """In the merge of each mode's table, the last one first: those before it in a run have nothing left to recover."""
    kill_in_each_merge(logs(kind), point)


# Of kinds that can merge in another way.
OTHERWISE = [
    (name, way, point) for name in KINDS for way in range(1, len(KINDS[name].ways)) for point in merge_points(name)
]


@pytest.mark.parametrize(("kind", "way", "point"), OTHERWISE)
def test_killed_merge_in_another_way(kind: str, way: int, point: str, logs: Callable[..., Log]) -> None:
    kill_in_each_merge(logs(kind, way), point)


def kill_in_each_merge(log: Log, point: str) -> None:
    turns = list(range(len(log.tables), 0, -1))
    if point == TAKEN_OVER:
        for turn in turns:
            log.grow()
            log.kill("clickhouse.before", turn)
        # Each run also takes over the table of the kill before it.
        turns = [1, *[2] * (len(turns) - 1)]
    for turn in turns:
        log.grow()
        log.kill(point, turn)
    log.finish(point)


@pytest.fixture(scope="module")
def everything(new_log: NewLog, module_topic: Callable[..., str]) -> Callable[[str], Log]:
    """By mode: a table of every kind that has it, with commit events and a topic of dead letters."""

    def make(mode: str) -> Log:
        parts = {
            "control": {"topic": f"control-{uuid.uuid4().hex[:8]}", "time_limit_seconds": 300},
            "dead_letters": {"topic": module_topic("dlq")},
        }
        log = new_log(targets(mode), **parts)
        log.bad = 0.05
        return log

    return cache(make)


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("point", [*failpoints.LANDING, *failpoints.EVENTS, *failpoints.DEAD_LETTERS])
def test_killed_run(point: str, mode: str, everything: Callable[[str], Log]) -> None:
    log = everything(mode)
    # Each table publishes events of its own merges.
    for turn in range(len(log.tables) if point.startswith("events.table") else 1, 0, -1):
        log.grow()
        log.kill(point, turn)
    log.finish(point)
    control = str(log.pipeline.spec.control.topic)
    published = events(log.connections, control)
    check_all_published(log.pipeline, published)
    check_groups(log.pipeline)
    check_repeated(published)
    broken = [r.value.encode() for r in log.records if isinstance(r.value, str)]
    sent = read_all(log.connections, str(log.pipeline.spec.dead_letters.topic), len(broken))
    assert Counter(message.value() for message in sent) == Counter(broken)


@pytest.mark.parametrize(
    ("point", "turn"),
    [(point, turn) for point in ("land.begun", "land.written", "land.published") for turn in (2, 3)],
)
def test_killed_while_the_next_batch_is_read(point: str, turn: int, read_ahead: Log) -> None:
    """The batch before it may be published by then, or not."""
    read_ahead.grow()
    read_ahead.kill(point, turn)
    read_ahead.finish(point)


@pytest.fixture(scope="module")
def read_ahead(new_log: NewLog) -> Log:
    """One landing has several batches."""
    log = new_log([Target(KINDS["iceberg"], mode) for mode in ("append", "upsert_delete")])
    log.edit(batch={"max_records": 30})
    return log


REFUSING = {name: kind for name, kind in KINDS.items() if kind.unrepresentable}


@pytest.mark.parametrize(
    ("kind", "point"),
    [(name, kind.dead_letters_written) for name, kind in REFUSING.items()] + [("", p) for p in failpoints.DEAD_LETTERS],
)
def test_killed_while_rows_are_refused(
    kind: str, point: str, new_log: NewLog, module_topic: Callable[..., str]
) -> None:
    """When the side table has them, or in the sending of each table, which has a position of its own."""
    odd = {f"odd_{k.name}": k.unrepresentable for k in KINDS.values() if k.unrepresentable and runnable(k)}
    tables = [target for target in targets("append") if f"odd_{target.kind.name}" in odd]
    log = new_log(tables, dead_letters={"topic": module_topic("dlq")})
    source = log.source
    columns = {**COLUMNS, **{name: kind for name, (kind, _) in odd.items()}}
    log.edit(source={**source, "value": {"format": "json", "columns": columns}})
    fine: dict[str, object] = {name: [] if kind.startswith("array") else None for name, (kind, _) in odd.items()}

    def put(key: int, **values: object) -> Record:
        return Record(0, key, {"id": key, "name": "n", "amount": 1.0, "op": "u", **fine, **values})

    def grow() -> None:
        first = len(log.records)
        log.produce([put(first), *(put(first + n, **{name: bad}) for n, (name, (_, bad)) in enumerate(odd.items(), 1))])

    # The first to be sent is that nothing landed is a dead letter.
    for turn in [1, 1] if kind else range(1 + len(tables), 1, -1):
        grow()
        log.kill(point, turn)
    log.do(*RUN)
    refused = {name: [r.key for r in log.records if r.value[name] != fine[name]] for name in odd}  # type: ignore[index]
    for target in tables:
        held = [r for r in log.records if r.key not in refused[f"odd_{target.kind.name}"]]
        assert log.rows(target) == model.expected(held, target.mode)
        own = log.pipeline.destination(log.table(target))
        assert sum(own.refused().values()) == len(refused[f"odd_{target.kind.name}"])
    wanted = Counter(key for keys in refused.values() for key in keys)
    sent = read_all(log.connections, str(log.pipeline.spec.dead_letters.topic), wanted.total())
    assert Counter(json.loads(bytes(message.value() or b""))["id"] for message in sent) == wanted


@pytest.mark.parametrize("point", [failpoints.GROUP])
def test_killed_before_the_group_without_a_control_topic(point: str, new_log: NewLog) -> None:
    log = new_log([Target(KINDS["iceberg"], "upsert")])
    log.grow()
    log.kill(point)
    log.finish(point)
    landed = log.pipeline.intermediate.committed()
    assert landed
    assert group_offsets(log.pipeline.kafka, log.pipeline.group, landed.offsets) == dict(landed.offsets)


@pytest.mark.parametrize(
    "point", ["merge.written", "bigquery.submitted", "clickhouse.truncating", "clickhouse.truncated"]
)
def test_killed_truncation(point: str, truncated: Log) -> None:
    """Rows that were there before it go, those of a larger order stay, whatever came in between."""
    log = truncated
    first, dice = len(log.records), random.Random(len(log.records))
    log.produce([change(dice, lsn) for lsn in range(first, first + 40)])
    log.finish("before the truncation")
    log.produce([truncation(0, first + 20), change(dice, first + 41)])
    log.kill(point)
    log.finish(point)


@pytest.fixture(scope="module")
def truncated(new_log: NewLog) -> Log:
    """Of every kind a table whose rows a truncation takes away."""
    log = new_log(targets("upsert_delete"), changes=CHANGES)
    source = log.source
    log.expected = expected
    log.edit(source={**source, "value": VALUE})
    return log


@pytest.mark.parametrize("point", [failpoints.NEW_COLUMNS, "land.published"])
def test_killed_between_new_columns_and_their_batch(point: str, new_log: NewLog) -> None:
    """The tables have the columns and not yet the batch: the next run lands it with the same columns."""
    log = new_log(targets())
    source = log.source
    log.edit(source={**source, "value": {**source["value"], "unknown_fields": "add"}})
    records = [
        Record(r.partition, r.key, {**r.value, "fresh": 7} if isinstance(r.value, dict) else r.value)
        for r in random_changes(1, 50, 20, 2)
    ]
    log.produce(records)
    log.kill(point)
    log.finish(point)
    assert "fresh" in log.pipeline.spec.source.value.columns


@pytest.fixture(scope="module")
def together(
    project: Project, module_topic: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Log]:
    """Tables that are committed at once, which only a REST catalog can do."""
    folder = tmp_path_factory.mktemp("together")
    with rest_connections(project.connections, folder) as file:
        own = Project(folder, project.home, file)
        tables = [target for target in targets() if target.kind.name == "iceberg"]
        yield Log(own, module_topic(partitions=2), tables, {"commit": "together"})


@pytest.mark.parametrize("point", ["merge.begun", "merge.written", *failpoints.TOGETHER])
def test_killed_common_commit(point: str, together: Log) -> None:
    """All tables have the batch, or none."""
    log = together
    before = [model.expected(log.records, target.mode) for target in log.tables]
    log.grow()
    log.kill(point, turn=2 if point in failpoints.MERGE else 1)
    if before[0]:
        after = [model.expected(log.records, target.mode) for target in log.tables]
        wanted = after if point == "together.published" else before
        assert [log.rows(target) for target in log.tables] == wanted
    log.finish(point)
