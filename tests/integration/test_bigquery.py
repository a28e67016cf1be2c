"""BigQuery tables against the independent model, on the emulator: every mode, coalesced batches, replay, order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resources.connections import Connections, load_connections
from resources.errors import TableReplaced
from tests.kit import model
from tests.kit.bigquery import bigquery_flow, destination, rows, select, service
from tests.kit.engine import Engine, session
from tests.kit.records import Record, bootstrap, produce, random_changes

MODES = ["append", "upsert", "upsert_delete", "delete"]
COORDINATES = ["topic", "partition", "offset"]


@pytest.fixture(scope="module")
def spark(bigquery: Path) -> Iterator[SparkSession]:
    with session(load_connections(bigquery / "connections.yaml")) as opened:
        yield opened


@pytest.fixture
def topic_(topic: Callable[..., str]) -> str:
    return topic(partitions=2)


@pytest.mark.slow
def test_every_mode_over_several_batches(connections: Connections, spark: SparkSession, topic_: str) -> None:
    flow = bigquery_flow(topic_, MODES, max_records=90)
    engine = Engine(flow, connections, spark)
    records: list[Record] = []
    for n in range(2):
        more = random_changes(n, 200, 25, 2)
        produce(bootstrap(connections), topic_, more)
        records += more
        # The last round lands several batches that one merge applies together; the others go batch by batch.
        while landed := engine.land(1 if n == 0 else 0):
            engine.merge_all()
            if n == 1:
                assert len(landed) > 1
                break
        for mode in MODES:
            assert rows(connections, flow.table(mode)) == model.expected(records, mode), (mode, n)
    found = destination(flow, "upsert_delete", connections)
    state = found.committed()
    assert state == engine.pipeline.intermediate.committed()
    row = found.state.read()
    assert row is not None
    assert select(connections, f"SELECT COUNT(*) AS n FROM `{row.intermediate}`") == [{"n": 0}], "cleaned up"
    table = service(connections).find_table(flow.table("upsert_delete"))
    assert table is not None
    assert state is not None
    assert table.labels["batchmerge-batch"] == str(state.batch_number)


@pytest.mark.parametrize("load_rows", [pytest.param(7, marks=pytest.mark.slow), 64])
def test_loads_in_chunks_over_batches(
    load_rows: int, connections: Connections, spark: SparkSession, topic_: str
) -> None:
    flow = bigquery_flow(topic_, ["append", "upsert_delete"], max_records=40, load_rows=load_rows)
    records = random_changes(11, 150, 25, 2)
    produce(bootstrap(connections), topic_, records)
    Engine(flow, connections, spark).advance()
    for mode in flow.modes:
        assert rows(connections, flow.table(mode)) == model.expected(records, mode)


@pytest.mark.slow
def test_replay_of_any_window_in_any_order_changes_nothing(
    connections: Connections, spark: SparkSession, topic_: str
) -> None:
    flow = bigquery_flow(topic_, MODES, max_records=60, metadata_columns=COORDINATES)
    engine = Engine(flow, connections, spark)
    records = random_changes(5, 240, 25, 2)
    produce(bootstrap(connections), topic_, records)
    engine.advance()
    landed = engine.pipeline.intermediate.committed()
    assert landed is not None
    last = landed.batch_number
    windows = [(first, end) for first, end in itertools.combinations(range(1, last + 1), 2)][::-2]
    assert len(windows) >= 2
    for mode in MODES:
        for first, end in windows:
            assert engine.replay(mode, first, end) is not None
            assert rows(connections, flow.table(mode)) == model.expected(records, mode), (mode, first, end)
    more = random_changes(6, 100, 25, 2)
    produce(bootstrap(connections), topic_, more)
    engine.advance()
    for mode in MODES:
        assert rows(connections, flow.table(mode)) == model.expected(records + more, mode), "a merge after replays"
    left = [t for t, _ in service(connections).tables("tests") if f"{flow.name}_" in t and "_replay_" in t]
    assert left == []


def test_replay_restores_what_was_damaged(connections: Connections, spark: SparkSession, topic_: str) -> None:
    flow = bigquery_flow(topic_, MODES, metadata_columns=COORDINATES)
    engine = Engine(flow, connections, spark)
    records = random_changes(7, 150, 25, 2)
    produce(bootstrap(connections), topic_, records)
    engine.advance()
    for mode in MODES:
        service(connections).change(f"DELETE FROM `{flow.table(mode)}` WHERE id < 9", {}, "test")
        assert rows(connections, flow.table(mode)) != model.expected(records, mode)
        engine.replay(mode, 1, 1)
        assert rows(connections, flow.table(mode)) == model.expected(records, mode), mode


def test_named_order_holds_across_merges(connections: Connections, spark: SparkSession, topic_: str) -> None:
    """A change that comes late does not win over a newer one, nor over a newer delete whose row is long gone."""
    flow = bigquery_flow(topic_, ["upsert_delete"])
    flow.overrides["changes"] = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "amount"}
    engine = Engine(flow, connections, spark)

    def change(key: int, order: float, op: str) -> Record:
        return Record(0, key, {"id": key, "name": f"{op}{order}", "amount": order, "op": op})

    rounds = [
        [change(1, 5, "u"), change(2, 5, "u"), change(3, 5, "u")],
        [change(1, 3, "u"), change(2, 7, "d"), change(3, 4, "d")],
        [change(2, 6, "u"), change(3, 6, "u")],
        [change(2, 7, "u")],
    ]
    for changes in rounds:
        produce(bootstrap(connections), topic_, changes)
        engine.advance()
        if changes is rounds[2]:
            expected = [(1, "u5", 5.0), (3, "u6", 6.0)]
            assert rows(connections, flow.table("upsert_delete")) == expected
    assert rows(connections, flow.table("upsert_delete")) == [(1, "u5", 5.0), (2, "u7", 7.0), (3, "u6", 6.0)]


def test_waits_for_interval_or_count(connections: Connections, spark: SparkSession, topic_: str) -> None:
    flow = bigquery_flow(topic_, ["upsert"], merge_interval_seconds=None, merge_records_threshold=100)
    engine = Engine(flow, connections, spark)
    records = random_changes(1, 60, 10, 2, bad=0)
    produce(bootstrap(connections), topic_, records)
    engine.land()
    assert engine.merge("upsert") is None
    assert rows(connections, flow.table("upsert")) == []
    more = random_changes(2, 60, 10, 2, bad=0)
    produce(bootstrap(connections), topic_, more)
    engine.land()
    assert engine.merge("upsert") is not None
    assert rows(connections, flow.table("upsert")) == model.expected(records + more, "upsert")


def test_replaced_table_is_noticed(connections: Connections, spark: SparkSession, topic_: str) -> None:
    flow = bigquery_flow(topic_, ["upsert"])
    engine = Engine(flow, connections, spark)
    records = random_changes(1, 30, 10, 2)
    produce(bootstrap(connections), topic_, records)
    engine.advance()
    table = flow.table("upsert")
    service(connections).delete_table(table)
    with pytest.raises(TableReplaced, match="was dropped"):
        engine.merge("upsert")
    service(connections).change(f"CREATE TABLE `{table}` (id INT64, name STRING, amount FLOAT64)", {}, "test")
    with pytest.raises(TableReplaced, match="created again"):
        engine.merge("upsert")
    service(connections).change(f"DELETE FROM tests.batchmerge_state WHERE table_name = '{table}'", {}, "test")
    assert engine.merge("upsert") is not None
    assert rows(connections, table) == model.expected(records, "upsert"), "filled anew from the landed batches"


def test_lost_intermediate_table_is_filled_anew_under_another_name(
    connections: Connections, spark: SparkSession, topic_: str
) -> None:
    flow = bigquery_flow(topic_, ["append"])
    engine = Engine(flow, connections, spark)
    records: list[Record] = []
    names = []
    for n in range(2):
        more = random_changes(n, 40, 10, 2)
        produce(bootstrap(connections), topic_, more)
        records += more
        engine.advance()
        row = destination(flow, "append", connections).state.read()
        assert row is not None
        names.append(row.intermediate)
        service(connections).delete_table(row.intermediate)
    assert names[0] != names[1]
    assert rows(connections, flow.table("append")) == model.expected(records, "append")
