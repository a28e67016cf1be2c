"""An Iceberg table holds what the records say: in every mode, however the log is cut, whatever is replayed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from jobs.replay.landed import replay_window
from resources.connections import Connections, load_connections
from resources.errors import ConfigurationError
from tests.kit import model
from tests.kit.engine import Engine
from tests.kit.examples import few
from tests.kit.flow import Flow
from tests.kit.records import COLUMNS, KEY, Record, bootstrap, produce, random_changes

MODES = ["append", "upsert", "upsert_delete", "delete"]
COORDINATES = {"metadata_columns": ["topic", "partition", "offset"]}


@dataclass
class Log:
    """One log in Kafka that many pipelines read."""

    topic: str
    records: list[Record]


@pytest.fixture(scope="module")
def shared(stack: Path) -> Connections:
    return load_connections(stack / "connections.yaml")


@pytest.fixture(scope="module")
def log(module_topic: Callable[..., str], shared: Connections) -> Log:
    made = Log(module_topic(partitions=2), random_changes(7, 150, 15, 2, bad=0.05))
    produce(bootstrap(shared), made.topic, made.records)
    return made


@pytest.fixture(scope="module")
def whole(log: Log, shared: Connections, spark: SparkSession) -> Engine:
    """The log in four batches, each merged on its own; some of the tables are replayed by the tests below."""
    engine = Engine(Flow(log.topic, MODES, max_records=40, table_options=COORDINATES), shared, spark)
    while engine.advance(batches=1):
        pass
    return engine


@pytest.mark.parametrize("mode", MODES)
def test_table_equals_the_model(mode: str, whole: Engine, log: Log) -> None:
    assert whole.read(mode) == model.expected(log.records, mode)


def test_account_of_every_batch_is_right(whole: Engine, log: Log) -> None:
    known = whole.pipeline.intermediate.landed()
    assert known.complete
    landed = known.batches
    assert [b.number for b in landed] == [1, 2, 3, 4]
    assert sum(b.counts.read for b in landed) == len(log.records)
    assert sum(b.counts.quarantined for b in landed) == model.bad(log.records)
    assert all(b.counts.balanced and b.counts.gaps == 0 for b in landed)


def test_nothing_new_changes_nothing(whole: Engine) -> None:
    before = {mode: whole.pipeline.destination(whole.flow.table(mode)).committed() for mode in MODES}
    assert whole.land() == []
    assert whole.merge("upsert_delete") is None
    assert {mode: whole.pipeline.destination(whole.flow.table(mode)).committed() for mode in MODES} == before


@pytest.mark.parametrize("mode", MODES)
def test_replay_of_any_window_leaves_the_table_as_it_was(mode: str, whole: Engine, log: Log) -> None:
    dice = random.Random(mode)
    state = whole.destination(mode).committed()
    for first, last in [(2, 3), (1, 4), (dice.randint(1, 4),) * 2]:
        done = whole.replay(mode, first, last)
        assert done
        assert [b.number for b in done.batches] == list(range(first, last + 1))
        assert whole.read(mode) == model.expected(log.records, mode), (first, last)
    assert whole.destination(mode).committed() == state
    assert whole.replay(mode, 7, 9) is None


def test_window_holds_the_batches_that_were_landed_in_it(whole: Engine) -> None:
    landed = whole.pipeline.intermediate.landed().batches
    second, third = (datetime.fromtimestamp(b.batch.planned_at / 1000, UTC) for b in landed[1:3])
    destination = whole.destination("append")
    done = replay_window(whole.pipeline, destination, second, third)
    assert done
    assert [b.number for b in done.batches] == [2], "from the start on, up to before the end"
    assert done.merged.counts.inserted == 0
    assert replay_window(whole.pipeline, destination, third + timedelta(days=1), third + timedelta(days=2)) is None


@pytest.mark.parametrize("mode", ["append", "delete"])
def test_replay_brings_back_rows_that_somebody_removed(mode: str, whole: Engine, log: Log) -> None:
    gone = whole.read(mode)[0][0]
    whole.pipeline.intermediate.catalog.require(whole.flow.table(mode)).delete(f"id = {gone}")
    assert whole.read(mode) != model.expected(log.records, mode)
    whole.replay(mode, 1, 4)
    assert whole.read(mode) == model.expected(log.records, mode)


@pytest.mark.parametrize("mode", ["append", "delete"])
def test_replay_without_coordinates_is_refused(mode: str, whole: Engine) -> None:
    bare = [{"kind": "iceberg", "table": whole.flow.table(mode), "mode": mode}]
    with pytest.raises(ConfigurationError, match="_topic, _partition, _offset"):
        whole.edited(tables=bare).replay(mode, 1, 2)


CUTS = st.lists(st.tuples(st.integers(1, 90), st.booleans()), min_size=1, max_size=3)
FEW = few(2)


def cut(engine: Engine, cuts: list[tuple[int, bool]]) -> None:
    """Lands batches of these sizes, merges after some of them, then the rest at once."""
    for size, merged in cuts:
        engine.edited(batch={"max_records": size}).land(1)
        if merged:
            engine.merge_all()
    engine.edited(batch={"max_records": 100_000}).advance()


@FEW
@given(cuts=CUTS)
def test_result_never_depends_on_where_the_log_was_cut(
    cuts: list[tuple[int, bool]], log: Log, shared: Connections, spark: SparkSession
) -> None:
    engine = Engine(Flow(log.topic, MODES), shared, spark)
    cut(engine, cuts)
    for mode in MODES:
        assert engine.read(mode) == model.expected(log.records, mode), mode


def test_merge_on_read_and_partitions_give_the_same_table(log: Log, shared: Connections, spark: SparkSession) -> None:
    layout = {"write": "merge_on_read", "partition_by": ["bucket(3, id)"]}
    engine = Engine(Flow(log.topic, MODES, table_options=layout), shared, spark)
    cut(engine, [(60, True)])
    for mode in MODES:
        assert engine.read(mode) == model.expected(log.records, mode), mode


# ---- order_by -------------------------------------------------------------------------------------------------------


def versioned(topic: str, modes: list[str], **options: object) -> Flow:
    """Keys move between partitions; `version` orders their changes."""
    return Flow(
        topic,
        modes,
        table_options={**COORDINATES, **options},
        overrides={
            "source": {
                "topics": [topic],
                "key": {"format": "json", "columns": KEY},
                "value": {"format": "json", "columns": {**COLUMNS, "version": "long"}},
            },
            "changes": {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "version"},
        },
    )


def change(partition: int, key: int, op: str, version: int | None, name: str) -> Record:
    return Record(partition, key, {"id": key, "name": name, "amount": 1.0, "op": op, "version": version})


def by_version(records: list[Record], mode: str) -> list[model.Row]:
    """The model with an order: an older change never wins, equal ones go by arrival, none is older than any."""
    newest: dict[int, int] = {}
    rows: dict[int, list[tuple[int, model.Row]]] = {}
    for r in records:
        assert isinstance(r.value, dict)
        assert r.key is not None
        version = -1 if r.value["version"] is None else int(str(r.value["version"]))
        row = (r.key, str(r.value["name"]), 1.0)
        mine = rows.setdefault(r.key, [])
        if r.value["op"] == "d":
            if mode == "delete":
                rows[r.key] = [(v, kept) for v, kept in mine if v > version]
                newest[r.key] = max(newest.get(r.key, -1), version)
            elif mode == "upsert_delete" and version >= newest.get(r.key, -1):
                rows[r.key], newest[r.key] = [], version
        elif version >= newest.get(r.key, -1):
            if mode == "delete":
                mine.append((version, row))
            else:
                rows[r.key], newest[r.key] = [(version, row)], version
    return sorted(row for many in rows.values() for _, row in many)


ORDERED = ["upsert", "upsert_delete", "delete"]
STORY = [
    [
        change(0, 1, "c", 1, "first"),
        change(0, 2, "c", 5, "newest"),
        change(0, 3, "c", 1, "x"),
        change(0, 4, "c", 9, "y"),
    ],
    # Late older changes; a delete; an equal version; a delete older than what is stored.
    [
        change(1, 1, "u", 3, "third"),
        change(1, 2, "u", 4, "late"),
        change(1, 3, "d", 7, "gone"),
        change(1, 4, "d", 2, "no"),
    ],
    [change(0, 1, "u", 2, "late"), change(0, 3, "u", 6, "older than its delete"), change(0, 4, "u", 9, "equal")],
    [
        change(1, 3, "u", 8, "newer than its delete"),
        change(1, 1, "d", 3, "equal delete"),
        change(1, 2, "u", None, "none"),
    ],
    [change(0, 5, "d", 4, "before it came"), change(0, 1, "u", 3, "equal after delete"), change(0, 5, "u", 3, "late")],
]


@pytest.fixture(scope="module")
def story(module_topic: Callable[..., str], shared: Connections, spark: SparkSession) -> Engine:
    """Each chapter landed and merged before the next one is told."""
    engine = Engine(versioned(module_topic(partitions=2), ORDERED), shared, spark)
    for chapter in STORY:
        produce(bootstrap(shared), engine.flow.topic, chapter)
        engine.advance()
    return engine


@pytest.mark.parametrize("mode", ORDERED)
def test_named_order_rules_over_arrival(mode: str, story: Engine) -> None:
    assert story.read(mode) == by_version([r for chapter in STORY for r in chapter], mode)


@pytest.mark.parametrize("mode", ORDERED)
def test_replay_keeps_the_named_order(mode: str, story: Engine) -> None:
    for first, last in [(3, 3), (1, 5), (2, 4)]:
        story.replay(mode, first, last)
        assert story.read(mode) == by_version([r for chapter in STORY for r in chapter], mode), (first, last)


@pytest.mark.slow
def test_named_order_with_random_changes_does_not_depend_on_cuts(
    module_topic: Callable[..., str], shared: Connections, spark: SparkSession
) -> None:
    dice = random.Random(11)
    topic = module_topic(partitions=2)
    records = [
        change(
            dice.randrange(2),
            dice.randrange(8),
            dice.choice("cuud"),
            dice.choice([None, *range(12)]),
            f"n{n}",
        )
        for n in range(150)
    ]
    # Arrival is by batch, then partition: so chapters of one partition each keep the model's order that of the log.
    chapters = [[r for r in records[n : n + 30] if r.partition == p] for n in range(0, 150, 30) for p in (0, 1)]
    told = [r for chapter in chapters for r in chapter]
    slow = Engine(versioned(topic, ORDERED), shared, spark)
    for n, chapter in enumerate(chapters):
        produce(bootstrap(shared), topic, chapter)
        slow.land()
        if n == 3:
            slow.merge_all()
    slow.merge_all()
    for mode in ORDERED:
        assert slow.read(mode) == by_version(told, mode), mode
