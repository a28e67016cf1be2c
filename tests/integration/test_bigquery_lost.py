"""What BigQuery's tables do when a part of what is kept beside them is lost or outdated, on the emulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from jobs.destinations.bigquery.loading import Loader
from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from jobs.verify.reconciliation import reconcile
from resources.connections import Connections
from resources.errors import TableReplaced
from tests.kit import model
from tests.kit.bigquery import bigquery_flow, destination, loads, rows, select, service
from tests.kit.command import Command
from tests.kit.engine import Engine, catalog
from tests.kit.interrupting import dying_at
from tests.kit.records import COLUMNS, KEY, Record, bootstrap, produce, random_changes

pytestmark = pytest.mark.usefixtures("bigquery_tables")


def produce_changes(engine: Engine, seed: int) -> list[Record]:
    records = random_changes(seed, 40, 10, 2, bad=0)
    engine.produce(*records)
    return records


def second_batch_dies_at(point: str, engine: Engine) -> tuple[list[Record], list[Record]]:
    """The records of a batch that is merged, and of one whose run dies there."""
    first = produce_changes(engine, 1)
    engine.advance()
    second = produce_changes(engine, 2)
    with dying_at(point):
        engine.advance()
    return first, second


@pytest.mark.parametrize("point", [pytest.param("bigquery.loaded", marks=pytest.mark.slow), "bigquery.merged"])
def test_flush_whose_batches_are_not_landed_any_more(
    point: str, connections: Connections, spark: SparkSession, topic: Callable[..., str], batchmerge: Command
) -> None:
    """What was only loaded is thrown away; what was merged is known, although the state did not say so yet."""
    flow = bigquery_flow(topic(partitions=2), ["append"])
    engine = Engine(flow, connections, spark)
    first, second = second_batch_dies_at(point, engine)
    records = first + second
    catalog(connections)._catalog.drop_table(engine.pipeline.intermediate.identifier)
    code, output = batchmerge(engine, "offsets", "reset", "", "--to", "committed", "--yes")
    assert (code, "All offsets stay" in output) == (0, True), output
    records += produce_changes(engine, 3)
    engine.advance()
    assert rows(connections, flow.table("append")) == model.expected(records, "append")
    records += produce_changes(engine, 4)
    engine.advance()
    assert rows(connections, flow.table("append")) == model.expected(records, "append")
    left = [t for t, _ in service(connections).tables("tests") if t.startswith(f"tests._{flow.name}_append_")]
    row = destination(flow, "append", connections).state.read()
    assert row is not None
    assert left == [row.staging_table]


def test_state_row_that_a_run_has_not_moved_is_moved_before_a_look_at_the_table(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    """The run died after its merge, and a pipeline that is paused does not run again."""
    flow = bigquery_flow(topic(partitions=2), ["upsert_delete"])
    engine = Engine(flow, connections, spark)
    first, second = second_batch_dies_at("bigquery.merged", engine)
    records = first + second
    verdict = reconcile(engine.pipeline, engine.destination("upsert_delete"), 0)
    assert (verdict.batch, verdict.wrong) == (2, [])
    records += produce_changes(engine, 3)
    with dying_at("bigquery.merged"):
        engine.advance()
    done = engine.replay("upsert_delete", 1, 3)
    assert done is not None
    assert [batch.number for batch in done.batches] == [1, 2, 3]
    assert rows(connections, flow.table("upsert_delete")) == model.expected(records, "upsert_delete")


def test_table_that_was_dropped_after_such_a_run_is_filled_again(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], batchmerge: Command
) -> None:
    flow = bigquery_flow(topic(partitions=2), ["append"])
    engine = Engine(flow, connections, spark)
    first, second = second_batch_dies_at("bigquery.merged", engine)
    records = first + second
    service(connections).delete_table(flow.table("append"))
    with pytest.raises(TableReplaced, match="batchmerge offsets forget"):
        engine.advance()
    code, output = batchmerge(engine, "offsets", "forget", "", flow.table("append"), "--yes")
    assert (code, "Done." in output) == (0, True), output
    engine.advance()
    assert rows(connections, flow.table("append")) == model.expected(records, "append")


def test_flush_that_was_loaded_under_an_earlier_file_is_loaded_again(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    """Without coordinates its rows would be those that a replay cannot recognize."""
    flow = bigquery_flow(topic(partitions=2), ["append"])
    engine = Engine(flow, connections, spark)
    first, second = second_batch_dies_at("bigquery.loaded", engine)
    engine = engine.with_table_options(metadata_columns=["topic", "partition", "offset"])
    engine.advance()
    expected = model.expected(first + second, "append")
    assert rows(connections, flow.table("append")) == expected
    assert len(loads(connections, flow)) == 3
    (traced,) = select(connections, f"SELECT COUNT(_offset) AS n FROM `{flow.table('append')}`")
    assert traced["n"] == len(model.expected(second, "append"))
    assert engine.replay("append", 2, 2)
    assert rows(connections, flow.table("append")) == expected


def test_deletes_that_were_merged_outlive_a_load_that_is_given_up(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = bigquery_flow(topic(), ["upsert_delete"])
    flow.overrides["changes"] = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "amount"}
    engine = Engine(flow, connections, spark)

    def produces(*changes: tuple[int, str, float]) -> None:
        engine.produce(*(Record(0, key, {"id": key, "name": op, "amount": at, "op": op}) for key, op, at in changes))

    produces((1, "c", 1))
    engine.advance()
    produces((1, "d", 7))
    engine.advance()
    produces((1, "u", 6), (2, "c", 1))
    with dying_at("bigquery.loaded"):
        engine.advance()
    # As if retention had removed the landed batches.
    monkeypatch.setattr(Loader, "copy", lambda *_, **__: pytest.fail("deletes come from landed batches"))
    engine.with_table_options(null_elements="drop").advance()
    assert rows(connections, flow.table("upsert_delete")) == [(2, "c", 1.0)]
    left = [t for t, _ in service(connections).tables("tests") if t.startswith(f"tests._{flow.name}_upsert_delete_")]
    row = destination(flow, "upsert_delete", connections).state.read()
    assert row is not None
    assert left == [row.staging_table]


@pytest.mark.parametrize("mode", ["upsert_delete", pytest.param("delete", marks=pytest.mark.slow)])
def test_deletes_that_were_merged_are_known_after_the_staging_table_was_lost(
    mode: str, connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    flow = bigquery_flow(topic(), [mode], metadata_columns=["topic", "partition", "offset"])
    flow.overrides["changes"] = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "amount"}
    engine = Engine(flow, connections, spark)

    def happens(*changes: tuple[int, str, float]) -> None:
        records = [Record(0, key, {"id": key, "name": op, "amount": at, "op": op}) for key, op, at in changes]
        produce(bootstrap(connections), flow.topic, records)
        engine.advance()

    def lose() -> None:
        row = destination(flow, mode, connections).state.read()
        assert row is not None
        service(connections).delete_table(row.staging_table)

    happens((1, "c", 1), (2, "c", 1))
    happens((1, "d", 7), (2, "u", 2))
    lose()
    happens((1, "u", 6), (3, "c", 1))
    after = rows(connections, flow.table(mode))
    assert [row for row in after if row[0] == 1] == []
    assert (3, "c", 1.0) in after
    happens((1, "u", 5), (1, "u", 8))
    assert [row for row in rows(connections, flow.table(mode)) if row[0] == 1] == [(1, "u", 8.0)]

    happens((2, "d", 3))
    engine = engine.with_source(transform="select * except (amount), amount * 10 as amount from records")
    assert reread_from_kafka(engine.pipeline, from_offsets({TopicPartition(flow.topic, 0): 0}))
    engine.merge_all()
    lose()
    happens((2, "u", 2))
    assert [row for row in rows(connections, flow.table(mode)) if row[0] == 2] == [], "as it was read again it is older"


def test_deletes_of_an_earlier_order_stay_forgotten_after_the_staging_table_was_lost(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], batchmerge: Command
) -> None:
    flow = bigquery_flow(topic(), ["upsert_delete"])
    value = {"format": "json", "columns": {**COLUMNS, "version": "double"}}
    flow.overrides["source"] = {"topics": [flow.topic], "key": {"format": "json", "columns": KEY}, "value": value}
    changes = {"key": {"columns": ["id"]}, "op": {"field": "op"}}
    flow.overrides["changes"] = {**changes, "order_by": "amount"}
    engine = Engine(flow, connections, spark)

    def happens(key: int, op: str, amount: float, version: float) -> None:
        engine.produce(Record(0, key, {"id": key, "name": op, "amount": amount, "version": version, "op": op}))
        engine.advance()

    happens(7, "c", 1, 900)
    happens(7, "d", 2, 900)
    engine = engine.edited(changes={**changes, "order_by": "version"})
    code, output = batchmerge(engine, "offsets", "reset", "", "--to", "committed", "--accept-changes", "--yes")
    assert code == 0, output
    happens(7, "c", 3, 1)
    row = destination(flow, "upsert_delete", connections).state.read()
    assert row is not None
    service(connections).delete_table(row.staging_table)
    happens(8, "c", 3, 1)
    happens(7, "u", 4, 2)
    assert rows(connections, flow.table("upsert_delete")) == [(7, "u", 4.0), (8, "c", 3.0)]
