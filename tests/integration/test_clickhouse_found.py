"""What ClickHouse tables are found in when they are taken up: half done, of another topic, without state, emptied."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import protocol
from jobs.connections_file import load_connections
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.offsets import TopicPartition
from jobs.replay.landed import replay_batches
from jobs.verify.drift import schema_drift
from resources.clickhouse import ClickHouseServer
from resources.connections import Connections
from resources.errors import ConfigurationError, LineageBroken, SchemaRefused
from tests.kit import model
from tests.kit.clickhouse import clickhouse_flow, rows, servers
from tests.kit.flow import Flow
from tests.kit.interrupting import dying_at
from tests.kit.model import Row
from tests.kit.records import Record, bootstrap, produce, random_changes, recreate
from tests.kit.resets import reset_offsets


@dataclass
class Table:
    """A pipeline with one table of this mode, all in this process."""

    flow: Flow
    mode: str
    connections: Connections
    spark: SparkSession
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pipeline = self.flow.pipeline(self.connections, self.spark)
        self.name = self.flow.table(self.mode)

    @property
    def server(self) -> ClickHouseServer:
        return servers(self.connections)[0]

    def grow(self, records: list[Record]) -> None:
        produce(bootstrap(self.connections), self.flow.topic, records)
        self.records += records

    def land(self, most: int = 0) -> int:
        return [landed.number for landed in protocol.land(self.pipeline, most)][-1]

    def merge(self, dies_at: str | None = None) -> None:
        with dying_at(dies_at) if dies_at else nullcontext():
            protocol.merge(self.pipeline, self.pipeline.destination(self.name))

    def reset(self, offset: int | None = None) -> None:
        reset_offsets(self.pipeline, None if offset is None else {TopicPartition(self.flow.topic, 0): offset})

    def read(self) -> list[Row]:
        return rows(self.connections, self.name)

    def expected(self) -> list[Row]:
        return model.expected(self.records, self.mode)


@pytest.fixture
def make(clickhouse: Path, stack: Path, spark: SparkSession, topic: Callable[..., str]) -> Callable[..., Table]:
    del clickhouse
    connections = load_connections(stack / "connections.yaml")

    def table(mode: str, max_records: int = 1000) -> Table:
        return Table(clickhouse_flow(topic(), [mode], max_records), mode, connections, spark)

    return table


def test_rows_of_a_recreated_topic_in_a_table_of_an_older_version(make: Callable[..., Table]) -> None:
    table = make("append")
    table.grow(random_changes(1, 30, 40, 1, bad=0))
    table.land()
    table.merge()
    # As a version before made it.
    table.server.execute(
        f"ALTER TABLE {table.name} DROP COLUMN _topic_id, DROP COLUMN _step", settings={"mutations_sync": 1}
    )
    recreate(table.connections, table.flow.topic)
    table.reset(offset=0)
    table.grow(random_changes(2, 20, 40, 1, bad=0))
    last = table.land()
    table.merge(dies_at="clickhouse.leased")
    table.merge()
    assert table.read() == table.expected()
    # A replay of everything finds the records of both topics.
    replay_batches(table.pipeline, table.pipeline.destination(table.name), 1, last)
    assert table.read() == table.expected()
    table.server.execute(f"DELETE FROM {table.name} WHERE _offset < 5", settings={"mutations_sync": 1})
    replay_batches(table.pipeline, table.pipeline.destination(table.name), 1, last)
    assert table.read() == table.expected()


@pytest.mark.parametrize(
    ("point", "mode"),
    [
        ("clickhouse.before", "append"),
        ("clickhouse.inserted", "append"),
        ("clickhouse.after", "upsert_delete"),
        *(
            pytest.param(*other, marks=pytest.mark.slow)
            for other in (
                ("clickhouse.before", "upsert_delete"),
                ("clickhouse.inserted", "upsert_delete"),
                ("clickhouse.after", "append"),
            )
        ),
    ],
)
def test_reset_after_the_landed_batches_of_a_half_done_step_were_lost(
    point: str, mode: str, make: Callable[..., Table]
) -> None:
    table = make(mode, max_records=40)
    table.grow(random_changes(3, 40, 20, 1, bad=0))
    table.land()
    table.merge()
    table.grow(random_changes(4, 120, 20, 1, bad=0))
    table.land()
    table.merge(dies_at=point)
    place = table.pipeline.intermediate
    place.catalog.drop(place.identifier)
    table.pipeline = table.flow.pipeline(table.connections, table.spark)
    with pytest.raises(LineageBroken, match="offsets reset"):
        table.merge()
    table.reset()
    table.grow(random_changes(5, 30, 20, 1, bad=0))
    table.land()
    table.merge()
    assert table.read() == table.expected()


def test_replay_finishes_what_a_dead_run_left_behind(make: Callable[..., Table]) -> None:
    table = make("upsert_delete")
    for seed, dies_at in ((1, None), (2, "clickhouse.before")):
        table.grow(random_changes(seed, 30, 30, 1))
        table.land()
        table.merge(dies_at)
    destination = table.pipeline.destination(table.name)
    assert [lease.left_behind for lease in destination.leases()] == [True]
    replayed = replay_batches(table.pipeline, destination, 1, 9)
    assert replayed
    assert [batch.number for batch in replayed.batches] == [1, 2]
    assert [lease.left_behind for lease in destination.leases()] == [False]
    assert table.read() == table.expected()


def test_table_that_was_emptied_is_filled_again_once_its_state_is_forgotten(make: Callable[..., Table]) -> None:
    """Deleting rows forgets no deduplication tokens."""
    table = make("append")
    table.grow(random_changes(8, 50, 20, 1, bad=0))
    table.land()
    table.merge()
    table.server.execute(f"ALTER TABLE {table.name} DELETE WHERE 1", settings={"mutations_sync": 2})
    assert table.read() == []
    assert table.pipeline.destination(table.name).drop_state()
    table.merge()
    assert table.read() == table.expected()


def test_upserts_are_replayed_over_a_reset_that_went_back(make: Callable[..., Table]) -> None:
    table = make("upsert_delete", max_records=40)
    table.grow(random_changes(9, 100, 50, 1, bad=0))
    table.land()
    table.reset(offset=0)
    last = table.land(1)
    table.merge()
    before = table.read()
    table.server.execute(f"DELETE FROM {table.name} WHERE id % 2 = 0", settings={"mutations_sync": 1})
    assert table.read() != before
    replay_batches(table.pipeline, table.pipeline.destination(table.name), 1, last)
    assert table.read() == before


@pytest.mark.parametrize("later", [0, 7])
def test_upserts_whose_versions_the_table_is_past_are_refused(make: Callable[..., Table], later: int) -> None:
    """The state is new, and so are the batches where the intermediate table is: they begin at 1 again."""
    table = make("upsert")
    table.grow(random_changes(1, 30, 40, 1, bad=0))
    table.land()
    table.merge()
    row = f"* REPLACE (_version + bitShiftLeft(toUInt64({later}), 32) AS _version)"
    table.server.execute(f"INSERT INTO {table.name} SELECT {row} FROM {table.name} LIMIT 1")
    table.server.execute(f"ALTER TABLE batchmerge_state DELETE WHERE startsWith(name, '{table.pipeline.name}/')")
    if later:
        with pytest.raises(ConfigurationError, match=r"the table has rows of batch 8, .* end with batch 1"):
            table.merge()
    else:
        table.merge()
    assert table.read() == table.expected()


def test_rows_that_the_engine_does_not_know(make: Callable[..., Table], caplog: pytest.LogCaptureFixture) -> None:
    """A table on another server, as `Distributed` has it: here one of the server's own."""
    table = make("append")
    server, (database, name) = table.server, ClickHouseTable.path_of(table.name)
    destination = table.pipeline.destination(table.name)
    destination.prepare()
    server.execute(f"CREATE TABLE {table.name}_there ENGINE = MergeTree ORDER BY () AS SELECT * FROM {table.name}")

    def create_there() -> None:
        server.execute(f"DROP TABLE {table.name} SYNC")
        server.execute(f"CREATE TABLE {table.name} AS remote('127.0.0.1', '{database}', '{name}_there')")

    create_there()
    table.grow(random_changes(1, 30, 40, 1, bad=0))
    table.land()
    table.merge()
    assert table.read() == table.expected()
    count = len(table.expected())
    with pytest.raises(ConfigurationError, match=f"the table has {count} rows"):
        destination.drop_state()
    assert destination.read(lambda: table.spark).known_count() == count
    create_there()
    table.grow(random_changes(2, 30, 40, 1, bad=0))
    table.land()
    table.merge()
    assert "it counts as restored" in caplog.text
    server.execute(f"ALTER TABLE batchmerge_state DELETE WHERE startsWith(name, '{table.pipeline.name}/')")
    table.grow(random_changes(3, 30, 40, 1, bad=0))
    table.land()
    table.merge()
    assert "the state was emptied" in caplog.text
    assert table.read() == table.expected()


@pytest.mark.parametrize("kind", ["ALIAS", "MATERIALIZED"])
def test_columns_that_the_table_computes_take_no_values(make: Callable[..., Table], kind: str) -> None:
    table = make("append")
    table.grow(random_changes(1, 30, 40, 1, bad=0))
    table.land()
    destination = table.pipeline.destination(table.name)
    destination.prepare()
    table.server.execute(f"ALTER TABLE {table.name} ADD COLUMN twice Int64 {kind} id * 2")
    table.merge()
    assert table.read() == table.expected()
    assert schema_drift(destination, lambda: table.spark) == []
    table.server.execute(f"ALTER TABLE {table.name} DROP COLUMN amount", settings={"mutations_sync": 1})
    table.server.execute(f"ALTER TABLE {table.name} ADD COLUMN amount Nullable(Float64) {kind} id / 4")
    with pytest.raises(SchemaRefused, match=f"amount is {kind} id / 4"):
        table.merge()
