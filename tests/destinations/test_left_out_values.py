"""A value that a change leaves out stays as the change before left it: in every system that can, however it is cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from jobs.dead_letters.retry import retry
from jobs.verify.reconciliation import reconcile
from resources.connections import Connections, load_connections
from tests.kit import model
from tests.kit.engine import Engine, session
from tests.kit.examples import few
from tests.kit.left_out import LEFT_OUT, as_told, change, flow, held, random_left_out
from tests.kit.records import Record, bootstrap, produce

KINDS = ["iceberg", "bigquery"]
MODES = ["upsert", "upsert_delete"]
Rows = dict[int, dict[str, object]]


@pytest.fixture(scope="module")
def shared(bigquery: Path) -> Connections:
    return load_connections(bigquery / "connections.yaml")


@pytest.fixture(scope="module")
def spark(shared: Connections) -> Iterator[SparkSession]:
    with session(shared) as opened:
        yield opened


@pytest.fixture(scope="module")
def log(module_topic: Callable[..., str], shared: Connections) -> tuple[str, list[Record]]:
    topic, records = module_topic(partitions=2), random_left_out(3, 120, 8, 2)
    produce(bootstrap(shared), topic, records)
    return topic, records


def expected(records: list[Record], mode: str) -> Rows:
    return {key: as_told(row) for key, row in model.with_left_out(records, LEFT_OUT, mode).items()}


def read(engine: Engine, kind: str, mode: str) -> Rows:
    return held(engine.connections, kind, engine.flow.table(mode))


def with_envelope(engine: Engine, **options: object) -> Engine:
    """The pipeline file with other options of the envelope."""
    source = engine.document["source"]
    assert isinstance(source, dict)
    value = source["value"]
    return engine.edited(source={**source, "value": {**value, "envelope": {"kind": "debezium", **options}}})


def tell(engine: Engine, *records: Record) -> None:
    produce(bootstrap(engine.connections), engine.flow.topic, records)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@few(2)
@given(cuts=st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_result_never_depends_on_where_the_log_was_cut(
    cuts: list[tuple[int, bool]],
    seed: int,
    kind: str,
    log: tuple[str, list[Record]],
    shared: Connections,
    spark: SparkSession,
) -> None:
    topic, records = log
    engine = Engine(flow(kind, topic, MODES), shared, spark)
    for size, merged in cuts:
        engine.edited(batch={"max_records": size}).land(1)
        if merged:
            engine.merge_all()
    engine.edited(batch={"max_records": 100_000}).advance()
    dice = random.Random(seed)
    batches = [b.number for b in engine.pipeline.intermediate.landed().batches]
    for mode in MODES:
        assert read(engine, kind, mode) == expected(records, mode), (mode, cuts)
        first, last = sorted(dice.choices(batches, k=2))
        engine.replay(mode, first, last)
        assert read(engine, kind, mode) == expected(records, mode), (mode, cuts, "replayed", first, last)
        verdict = reconcile(engine.pipeline, engine.destination(mode), 0)
        assert verdict.wrong == [], (mode, cuts)
        assert verdict.compared == len(expected(records, mode))


@pytest.mark.parametrize("kind", ["iceberg", pytest.param("bigquery", marks=pytest.mark.slow)])
def test_change_by_change(kind: str, topic: Callable[..., str], shared: Connections, spark: SparkSession) -> None:
    engine = Engine(flow(kind, topic(), ["upsert_delete"]), shared, spark)
    chapters = [
        [change(1, "c", body="one", raw="AQ==", tags=["t"], n=1), change(2, "u", n=1)],
        [change(1, "u", n=2)],
        [change(1, "u", body=None, n=3), change(1, "u", raw="Ag==", n=4), change(2, "u", body="two", n=2)],
        [change(1, "d"), change(1, "c", n=5), change(2, "u", n=3)],
        [change(1, "u", tags=["u", "v"], n=6)],
    ]
    found, told = [], []
    for chapter in chapters:
        tell(engine, *chapter)
        engine.advance()
        told += chapter
        found.append(read(engine, kind, "upsert_delete"))
        assert found[-1] == expected(told, "upsert_delete")
    one = {"id": 1, "body": "one", "raw": "AQ==", "tags": ["t"], "n": 2}
    assert [rows[1] for rows in found[1:4]] == [
        one,
        {**one, "body": None, "raw": "Ag==", "n": 4},
        {"id": 1, "body": None, "raw": None, "tags": [], "n": 5},
    ]
    assert [rows[2]["body"] for rows in found] == [None, None, "two", "two", "two"]


@pytest.mark.parametrize("kind", ["iceberg", pytest.param("bigquery", marks=pytest.mark.slow)])
def test_batches_that_keep_values_go_on_doing_so_after_the_option_is_changed(
    kind: str, topic: Callable[..., str], shared: Connections, spark: SparkSession
) -> None:
    engine = Engine(flow(kind, topic(), ["upsert_delete"], unavailable="keep"), shared, spark)
    tell(engine, change(1, "c", body="one", n=1), change(2, "c", body="two", n=1))
    engine.advance()
    tell(engine, change(1, "u", n=2))
    engine.land()
    nulls = with_envelope(engine, unavailable="null")
    tell(engine, change(2, "u", n=2))
    nulls.advance()
    after = {1: "one", 2: None}
    assert {key: row["body"] for key, row in read(engine, kind, "upsert_delete").items()} == after
    for first, last in [(2, 2), (2, 3), (1, 3)]:
        nulls.replay("upsert_delete", first, last)
        assert {key: row["body"] for key, row in read(engine, kind, "upsert_delete").items()} == after


@pytest.mark.parametrize("kind", ["iceberg", pytest.param("bigquery", marks=pytest.mark.slow)])
def test_pipeline_that_refused_such_changes_begins_to_keep_values(
    kind: str, topic: Callable[..., str], shared: Connections, spark: SparkSession
) -> None:
    """Its intermediate tables get the new column; the dead letters take their place."""
    engine = Engine(flow(kind, topic(), ["upsert_delete"], unavailable="refuse"), shared, spark)
    one = change(1, "c", body="one", raw=None, tags=[], n=1)
    tell(engine, one, change(1, "u", n=2), change(2, "c", body="two", raw=None, tags=[], n=1))
    (landed,) = engine.advance()
    assert landed.counts.quarantined == 1
    assert read(engine, kind, "upsert_delete")[1]["n"] == 1
    keeping = with_envelope(engine)
    tell(engine, change(2, "u", n=2))
    keeping.advance()
    retried = retry(keeping.pipeline)
    assert (retried.tried, retried.recovered) == (1, 1)
    found = read(engine, kind, "upsert_delete")
    assert {key: (row["body"], row["n"]) for key, row in found.items()} == {1: ("one", 2), 2: ("two", 2)}


def test_tables_with_a_row_a_change_get_null(
    topic: Callable[..., str], shared: Connections, spark: SparkSession
) -> None:
    modes = ["append", "delete", "upsert"]
    engine = Engine(flow("iceberg", topic(), modes, unavailable="keep"), shared, spark)
    tell(engine, change(1, "c", body="one", n=1), change(1, "u", n=2))
    engine.advance()
    table = engine.pipeline.intermediate.catalog
    for mode in ("append", "delete"):
        rows = table.require(engine.flow.table(mode)).scan().to_arrow().sort_by("n").to_pylist()
        assert [(row["n"], row["body"]) for row in rows] == [(1, "one"), (2, None)]
    assert read(engine, "iceberg", "upsert")[1]["body"] == "one"
