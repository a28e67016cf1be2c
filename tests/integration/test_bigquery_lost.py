"""What BigQuery's tables do when a part of what is kept beside them is lost, on the emulator."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

import pytest
from pyspark.sql import SparkSession

from jobs.destinations.bigquery.state import STATE_TABLE
from resources.connections import Connections
from resources.errors import ConfigurationError, InvariantBroken
from tests.kit import model
from tests.kit.bigquery import bigquery_flow, destination, rows, select, service
from tests.kit.command import Command
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.interrupting import Died, at_failpoints
from tests.kit.records import Record, bootstrap, produce, random_changes, recreate

pytestmark = pytest.mark.usefixtures("bigquery_tables")

STATE = f"tests.{STATE_TABLE}"


def tell(engine: Engine, seed: int) -> list[Record]:
    records = random_changes(seed, 40, 10, 2, bad=0)
    engine.tell(*records)
    return records


def die_at(point: str, engine: Engine) -> None:
    """A run that merges dies there."""

    def act(name: str) -> None:
        if name == point:
            raise Died(name)

    with at_failpoints(act), suppress(Died):
        engine.advance()
        raise AssertionError(f"{point} was not reached")


@pytest.mark.parametrize("point", ["bigquery.loaded", "bigquery.merged"])
def test_flush_whose_batches_are_not_landed_any_more(
    point: str, connections: Connections, spark: SparkSession, topic: Callable[..., str], batchmerge: Command
) -> None:
    """What was only loaded is thrown away; what was merged is known, although the state did not say so yet."""
    flow = bigquery_flow(topic(partitions=2), ["append"])
    engine = Engine(flow, connections, spark)
    records = tell(engine, 1)
    engine.advance()
    records += tell(engine, 2)
    die_at(point, engine)
    catalog(connections)._catalog.drop_table(engine.pipeline.intermediate.identifier)
    code, said = batchmerge(engine, "offsets", "reset", "", "--to", "committed", "--yes")
    assert (code, "All offsets stay" in said) == (0, True), said
    records += tell(engine, 3)
    engine.advance()
    assert rows(connections, flow.table("append")) == model.expected(records, "append")
    records += tell(engine, 4)
    engine.advance()
    assert rows(connections, flow.table("append")) == model.expected(records, "append")
    left = [t for t, _ in service(connections).tables("tests") if t.startswith(f"tests._{flow.name}_append_")]
    row = destination(flow, "append", connections).state.read()
    assert row is not None
    assert left == [row.intermediate]


def test_lost_state_of_a_full_table(
    connections: Connections,
    spark: SparkSession,
    topic: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where nothing tells rows apart the run stops, and both ways out that it names work; keys are merged again."""
    flow = bigquery_flow(topic(partitions=2), ["append", "upsert_delete"])
    engine = Engine(flow, connections, spark)
    records = tell(engine, 1)
    engine.advance()
    (kept,) = select(connections, f"SELECT TO_JSON_STRING(s) AS row FROM {STATE} AS s WHERE {named(flow, 'append')}")
    copy = f"tests.kept_{flow.name}"
    service(connections).change(f"CREATE TABLE {copy} AS SELECT * FROM {STATE} WHERE {named(flow, 'append')}", {}, "t")
    for mode in flow.modes:
        service(connections).change(f"DELETE FROM {STATE} WHERE {named(flow, mode)}", {}, "test")
    records += tell(engine, 2)
    engine.land()
    with pytest.raises(InvariantBroken, match=f"its row in `{STATE}` is gone") as refused:
        engine.merge("append")
    assert "FOR SYSTEM_TIME AS OF" in refused.value.remedy
    with caplog.at_level(logging.WARNING, "batchmerge"):
        engine.merge("upsert_delete")
    assert "all batches that are still landed are merged again" in caplog.text
    assert rows(connections, flow.table("upsert_delete")) == model.expected(records, "upsert_delete")

    service(connections).change(f"INSERT INTO {STATE} SELECT * FROM {copy}", {}, "test")
    assert select(connections, f"SELECT TO_JSON_STRING(s) AS row FROM {STATE} AS s WHERE {named(flow, 'append')}") == [
        kept
    ]
    engine.merge("append")
    assert rows(connections, flow.table("append")) == model.expected(records, "append")

    service(connections).change(f"DELETE FROM {STATE} WHERE {named(flow, 'append')}", {}, "test")
    service(connections).delete_table(flow.table("append"))
    engine.merge("append")
    assert rows(connections, flow.table("append")) == model.expected(records, "append")


def named(flow: Flow, mode: str) -> str:
    return f"pipeline = '{flow.name}' AND table_name = '{flow.table(mode)}'"


@pytest.mark.parametrize("mode", ["upsert_delete", pytest.param("delete", marks=pytest.mark.slow)])
def test_deletes_that_were_merged_are_known_after_the_intermediate_table_was_lost(
    mode: str, connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    flow = bigquery_flow(topic(), [mode])
    flow.overrides["changes"] = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "amount"}
    engine = Engine(flow, connections, spark)

    def happens(*changes: tuple[int, str, float]) -> None:
        told = [Record(0, key, {"id": key, "name": op, "amount": at, "op": op}) for key, op, at in changes]
        produce(bootstrap(connections), flow.topic, told)
        engine.advance()

    happens((1, "c", 1), (2, "c", 1))
    happens((1, "d", 7), (2, "u", 2))
    row = destination(flow, mode, connections).state.read()
    assert row is not None
    service(connections).delete_table(row.intermediate)
    happens((1, "u", 6), (3, "c", 1))
    after = rows(connections, flow.table(mode))
    assert [row for row in after if row[0] == 1] == []
    assert (3, "c", 1.0) in after
    happens((1, "u", 5), (1, "u", 8))
    assert [row for row in rows(connections, flow.table(mode)) if row[0] == 1] == [(1, "u", 8.0)]


@pytest.mark.parametrize("columns", [["topic", "partition", "offset", "batch"], ["topic", "partition", "offset"]])
def test_rows_of_a_recreated_topic_are_not_taken_for_those_of_the_old_one(
    columns: list[str], connections: Connections, spark: SparkSession, topic: Callable[..., str], batchmerge: Command
) -> None:
    """A row that somebody has deleted comes back by a replay, although a row of the old topic has its offset."""
    flow = bigquery_flow(topic(), ["append", "delete"], metadata_columns=columns)
    engine = Engine(flow, connections, spark)

    def put(*keys: int) -> None:
        told = [Record(0, key, {"id": key, "name": "n", "amount": 1.0, "op": "u"}) for key in keys]
        produce(bootstrap(connections), flow.topic, told)
        engine.advance()

    put(1, 2)
    recreate(connections, flow.topic)
    code, said = batchmerge(engine, "offsets", "reset", "", "--topic", flow.topic, "--to", "earliest", "--yes")
    assert code == 0, said
    put(3, 4)
    for mode in flow.modes:
        service(connections).change(f"DELETE FROM {flow.table(mode)} WHERE id IN (1, 4)", {}, "test")
        if "batch" not in columns:
            with pytest.raises(ConfigurationError, match="was recreated"):
                engine.replay(mode, 1, 3)
            continue
        engine.replay(mode, 1, 3)
        assert [key for key, *_ in rows(connections, flow.table(mode))] == [1, 2, 3, 4]
