"""Rows spread over three servers by a named hash: each in one place, together the model; and what is refused."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from jobs import protocol
from jobs.connections_file import load_connections
from jobs.destinations.base import Destination
from jobs.destinations.clickhouse.maintain import drop_deletes
from jobs.destinations.clickhouse.merge import merge
from jobs.destinations.stages import Stages
from jobs.merged import MergedBatches, Pending
from jobs.offsets import TopicPartition
from jobs.pipeline import Pipeline
from jobs.replay.from_kafka import from_offsets, reread_from_kafka
from jobs.replay.landed import replay_batches
from jobs.resets.offset_reset import Impact, commit, impact, plan_reset, read_state
from jobs.verify.reconciliation import reconcile
from resources.connections import ClickHouseConnection, Connections
from resources.errors import CommitFailed, ConfigurationError, TableReplaced, Unavailable
from resources.local import stack as local_stack
from resources.local.ports import free_port
from tests.kit import model
from tests.kit.clickhouse import clickhouse_flow, destination, rows, servers, until_up
from tests.kit.connections_file import connection_entries
from tests.kit.engine import catalog
from tests.kit.network import wire_to, with_connection
from tests.kit.processes import stop
from tests.kit.received import ROWS, check_no_rows, incompressible, received
from tests.kit.records import bootstrap, produce, put, random_changes


@pytest.fixture(scope="module")
def endpoints(clickhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The stack's server and two more beside it, with the same user and the same keeper."""
    known = connection_entries(clickhouse)["clickhouse"]["endpoints"]
    zookeeper = next(s for s in local_stack.status(clickhouse) if s.name == "zookeeper")
    keeper = f"127.0.0.1:{zookeeper.ports['client']}"
    running: list[subprocess.Popen[bytes]] = []
    found = list(known)
    try:
        for n in range(2):
            http = free_port([])
            tcp = free_port([http])
            running.append(
                subprocess.Popen(
                    [
                        *(sys.executable, "-m", "resources.local.clickhouse_server"),
                        *("--folder", str(tmp_path_factory.mktemp(f"shard{n}"))),
                        *("--http-port", str(http), "--tcp-port", str(tcp), "--zookeeper", keeper),
                        *("--user", "batchmerge", "--password-file", str(clickhouse / "secrets/clickhouse-password")),
                    ]
                )
            )
            found.append(f"127.0.0.1:{http}")
        yield found
    finally:
        for process in running:
            process.terminate()
        for process in running:
            stop(process)


@pytest.fixture
def sharded(endpoints: list[str], connections: Connections, tmp_path: Path) -> Callable[..., Connections]:
    """The connections of the stack, with these of the three endpoints."""

    def of(*numbers: int) -> Connections:
        document = yaml.safe_load(Path(connections.origin).read_text())
        document["connections"]["clickhouse"]["endpoints"] = [endpoints[n] for n in numbers]
        path = tmp_path / "connections.yaml"
        path.write_text(yaml.safe_dump(document))
        loaded = load_connections(path)
        for server in servers(loaded):
            until_up(server)
        return loaded

    return of


MODES = ["append", "upsert_delete"]


@pytest.mark.slow
@pytest.mark.parametrize("function", ["sipHash64", pytest.param("cityHash64", marks=pytest.mark.slow)])
def test_rows_are_spread_by_the_named_hash(
    function: str, sharded: Callable[..., Connections], topic: Callable[..., str], spark: SparkSession
) -> None:
    connections = sharded(0, 1, 2)
    flow = clickhouse_flow(topic(partitions=2), MODES, max_records=150, hash_function=function, shard_by=["id"])
    records = random_changes(11, 300, 60, 2)
    produce(bootstrap(connections), flow.topic, records)
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    for table in pipeline.destinations():
        protocol.merge(pipeline, table)
    for mode in MODES:
        assert rows(connections, flow.table(mode)) == model.expected(records, mode)
        for number, server in enumerate(servers(connections)):
            shard = f"{function}(id) % 3 AS shard"
            found = server.rows(f"SELECT {shard}, count() AS n FROM {flow.table(mode)} GROUP BY shard")
            assert [row["shard"] for row in found] == [number]
            assert found[0]["n"] > 0


def test_shard_that_was_down_catches_up_and_the_others_skip(
    sharded: Callable[..., Connections], topic: Callable[..., str], spark: SparkSession
) -> None:
    connections = sharded(0, 1, 2)
    flow = clickhouse_flow(topic(partitions=2), ["append"], max_records=150)
    records = random_changes(12, 300, 60, 2)
    produce(bootstrap(connections), flow.topic, records)
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    table = destination(pipeline, flow.table("append"))
    table.prepare()
    work, landed = pipeline.merge_context(table), pipeline.intermediate.landed().batches
    merge(table.shards[0], work, None, landed, Stages())
    merge(table.shards[2], work, None, landed[:1], Stages())
    assert table.committed() is None
    protocol.merge(pipeline, table)
    assert rows(connections, flow.table("append")) == model.expected(records, "append")


@pytest.mark.parametrize("mode", ["append", pytest.param("upsert_delete", marks=pytest.mark.slow)])
def test_endpoint_that_is_down_holds_back_its_own_rows_alone(
    mode: str, sharded: Callable[..., Connections], topic: Callable[..., str], spark: SparkSession
) -> None:
    connections = sharded(0, 1, 2)
    known = connections.get("clickhouse", ClickHouseConnection)
    flow = clickhouse_flow(topic(partitions=2), [mode], max_records=150, shard_by=["id"])
    name, records = flow.table(mode), random_changes(14, 300, 60, 2)
    with wire_to(known.endpoints[1]) as (wire, address):
        through = [known.endpoints[0], address, known.endpoints[2]]
        wired = with_connection(connections, "clickhouse", known.model_copy(update={"endpoints": through}))
        pipeline = flow.pipeline(wired, spark)
        produce(bootstrap(connections), flow.topic, records[:150])
        list(protocol.land(pipeline, 0))
        before = _merged(pipeline, name)
        produce(bootstrap(connections), flow.topic, records[150:])
        list(protocol.land(pipeline, 0))
        wire.cut()
        with pytest.raises(Unavailable, match=address):
            protocol.merge(pipeline, pipeline.destination(name))
        newest = pipeline.intermediate.landed().batches[-1].batch.commit_id
        assert pipeline.destination(name).lacks(newest)
        others = with_connection(connections, "clickhouse", known.model_copy(update={"endpoints": through[::2]}))
        ahead = rows(others, name)
        wire.restore()
        done = _merged(pipeline, name)
        assert done.batches[0].number == before.batches[-1].number + 1
        assert rows(others, name) == ahead
        assert rows(connections, name) == model.expected(records, mode)


def test_each_row_and_each_dead_letter_is_on_one_endpoint(
    sharded: Callable[..., Connections], topic: Callable[..., str], spark: SparkSession
) -> None:
    """A batch is sent once, not once to every endpoint; a value that decides the place may be what is refused."""
    connections = sharded(0, 1, 2)
    known = connections.get("clickhouse", ClickHouseConnection)
    flow = clickhouse_flow(topic(partitions=2), ["append"], shard_by=["id"], column_types={"id": "UInt8"})
    ids, dice = [*range(200), 300, 301], random.Random(3)
    names = [dice.randbytes(1000).hex() for _ in ids]
    produce(
        bootstrap(connections), flow.topic, [put(n, name, partition=n % 2) for n, name in zip(ids, names, strict=True)]
    )
    with ExitStack() as stack:
        wires, through = zip(*(stack.enter_context(wire_to(endpoint)) for endpoint in known.endpoints), strict=True)
        wired = with_connection(connections, "clickhouse", known.model_copy(update={"endpoints": list(through)}))
        pipeline = flow.pipeline(wired, spark)
        list(protocol.land(pipeline, 0))
        counts = _merged(pipeline, flow.table("append")).merged.counts
        assert destination(pipeline, flow.table("append")).refused() == {1: 2}
    assert (counts.changes, counts.inserted, counts.refused) == (202, 200, 2)
    assert sorted(row[0] for row in rows(connections, flow.table("append"))) == list(range(200))
    assert sum(wire.carried for wire in wires) < 2 * sum(map(len, names))


@pytest.mark.slow
def test_rows_of_several_endpoints_stay_on_workers(
    sharded: Callable[..., Connections], topic: Callable[..., str], spark: SparkSession
) -> None:
    connections = sharded(0, 1, 2)
    flow = clickhouse_flow(topic(partitions=2), ["append"], max_records=100_000, shard_by=["id"])
    produce(bootstrap(connections), flow.topic, [put(n, incompressible(n), partition=n % 2) for n in range(3 * ROWS)])
    pipeline = flow.pipeline(connections, spark)
    with received() as moving:
        list(protocol.land(pipeline, 0))
        assert _merged(pipeline, flow.table("append")).merged.counts.inserted == 3 * ROWS
    check_no_rows(moving, times=3)


@pytest.mark.slow
def test_record_that_is_read_again_stays_where_it_is(
    sharded: Callable[..., Connections],
    topic: Callable[..., str],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transform is corrected, and by the new value it belongs on another endpoint. The batch after it is merged by
    the endpoints side by side."""
    connections = sharded(0, 1, 2)
    flow = clickhouse_flow(topic(partitions=2), ["append"], shard_by=["name"])
    name, records = flow.table("append"), [put(n, f"n{n}", partition=n % 2) for n in range(90)]
    produce(bootstrap(connections), flow.topic, records[:60])
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    _merged(pipeline, name)
    for server in servers(connections)[:2]:
        server.execute(f"DELETE FROM {name} WHERE id < 15")
    produce(bootstrap(connections), flow.topic, records[60:])
    list(protocol.land(pipeline, 0))
    there = {row[0]: row for row in [*rows(connections, name), *model.expected(records[60:], "append")]}
    wanted = [there.get(n, (n, f"n{n}!", 1)) for n in range(99)]
    assert 75 < len(there) < 90, "some are to come back"

    transform = "select * except (name), concat(name, '!') as name from records"
    source = flow.spec_document["source"]
    flow.overrides["source"] = {**source, "transform": transform}
    pipeline = flow.pipeline(connections, spark)
    starts = {TopicPartition(flow.topic, partition): 0 for partition in range(2)}
    reread_from_kafka(pipeline, from_offsets(starts))
    produce(bootstrap(connections), flow.topic, [put(n, f"n{n}", partition=n % 2) for n in range(90, 99)])
    list(protocol.land(pipeline, 0))
    table, landed = destination(pipeline, name), pipeline.intermediate.landed().batches
    table.prepare()
    work, first = pipeline.merge_context(table), table.shards[0]
    merge(first, work, first.committed(), landed[1:2], Stages())

    looked, merged_by = list[int | None](), dict[int, set[int | None]]()

    def pending(pipeline: Pipeline, part: Destination) -> Pending:
        """Two endpoints have looked when there was nothing new, and are done."""
        found, endpoint = protocol_pending(pipeline, part), getattr(part, "endpoint", None)
        looked.append(endpoint)
        early = endpoint in (2, 3) and looked.count(endpoint) == 1
        if not early and found.batches:
            merged_by.setdefault(found.batches[-1].number, set()).add(endpoint)
        return replace(found, batches=[], more=False) if early else found

    protocol_pending = protocol.pending
    monkeypatch.setattr(protocol, "pending", pending)
    _merged(pipeline, name)
    monkeypatch.undo()
    assert merged_by[4] == {1, 2, 3}
    assert rows(connections, name) == wanted
    replay_batches(pipeline, table, 1, 3)
    assert rows(connections, name) == wanted


@pytest.mark.parametrize("mode", [pytest.param("append", marks=pytest.mark.slow), "upsert_delete"])
def test_endpoint_that_is_ahead_of_a_revision_holds_back_no_other(
    mode: str,
    sharded: Callable[..., Connections],
    topic: Callable[..., str],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The slower ones get the batch that was read again, and those after it."""
    connections = sharded(0, 1)
    flow, records = clickhouse_flow(topic(partitions=2), [mode]), random_changes(15, 80, 30, 2)
    pipeline, name = flow.pipeline(connections, spark), flow.table(mode)
    for part in (records[:40], records[40:]):
        produce(bootstrap(connections), flow.topic, part)
        list(protocol.land(pipeline, 0))
        if part == records[:40]:
            _merged(pipeline, name)
            starts = {TopicPartition(flow.topic, partition): 0 for partition in range(2)}
            reread_from_kafka(pipeline, from_offsets(starts))
    table, (_, again, last) = destination(pipeline, name), pipeline.intermediate.landed().batches
    assert again.batch.revises is not None
    table.prepare()
    work, first = pipeline.merge_context(table), table.shards[0]
    for batch in (again, last):
        merge(first, work, first.committed(), [batch], Stages())
    monkeypatch.setattr(type(table), "parts", lambda self: [self])
    _merged(pipeline, name)
    assert {shard.number: state.batch_number for shard in table.shards if (state := shard.committed())} == {1: 3, 2: 3}
    assert rows(connections, name) == model.expected(records, mode)


def test_table_is_not_compared_while_one_endpoint_is_ahead(
    sharded: Callable[..., Connections], topic: Callable[..., str], spark: SparkSession
) -> None:
    """Its rows are right, and the committed state, that of the other one, does not explain them."""
    connections = sharded(0, 1)
    flow, records = clickhouse_flow(topic(partitions=2), ["append"]), random_changes(16, 80, 30, 2)
    pipeline, name = flow.pipeline(connections, spark), flow.table("append")
    for part in (records[:40], records[40:]):
        produce(bootstrap(connections), flow.topic, part)
        list(protocol.land(pipeline, 0))
        if part == records[:40]:
            _merged(pipeline, name)
    table = destination(pipeline, name)
    table.prepare()
    work, first = pipeline.merge_context(table), table.shards[0]
    merge(first, work, first.committed(), pipeline.intermediate.landed().batches[1:], Stages())
    with pytest.raises(CommitFailed, match="not in all of the table yet"):
        reconcile(pipeline, table, 0)
    _merged(pipeline, name)
    assert reconcile(pipeline, table, 0).wrong == []


def test_replay_of_an_endpoint_that_is_ahead_brings_no_deleted_row_back(
    sharded: Callable[..., Connections], topic: Callable[..., str], spark: SparkSession
) -> None:
    """Maintenance has dropped the rows of deletes that the other endpoint has not got yet."""
    connections = sharded(0, 1)
    flow = clickhouse_flow(topic(), ["upsert_delete"])
    pipeline, name = flow.pipeline(connections, spark), flow.table("upsert_delete")
    for op in ("u", "d"):
        produce(bootstrap(connections), flow.topic, [put(n, op=op) for n in range(20)])
        list(protocol.land(pipeline, 0))
        if op == "u":
            _merged(pipeline, name)
    table = destination(pipeline, name)
    work, first = pipeline.merge_context(table), table.shards[0]
    merge(first, work, first.committed(), pipeline.intermediate.landed().batches[1:], Stages())
    assert drop_deletes(first, 60) == 1
    replay_batches(pipeline, table, 1, 1)
    _merged(pipeline, name)
    assert rows(connections, name) == []


def test_reset_after_the_landed_batches_were_lost_continues_each_endpoint(
    sharded: Callable[..., Connections], topic: Callable[..., str], spark: SparkSession
) -> None:
    """One of them is ahead: its batch number is not given to another batch."""
    connections = sharded(0, 1)
    flow = clickhouse_flow(topic(), ["upsert_delete"])
    pipeline, name = flow.pipeline(connections, spark), flow.table("upsert_delete")
    for first in (0, 20):
        produce(bootstrap(connections), flow.topic, [put(first + n) for n in range(20)])
        list(protocol.land(pipeline, 0))
        if not first:
            _merged(pipeline, name)
    table = destination(pipeline, name)
    work, ahead = pipeline.merge_context(table), table.shards[0]
    merge(ahead, work, ahead.committed(), pipeline.intermediate.landed().batches[1:], Stages())
    catalog(connections).drop(pipeline.intermediate.identifier)
    pipeline = flow.pipeline(connections, spark)
    known = read_state(pipeline)
    base = known.base(table.name)
    reset = plan_reset(known, base, {}, (), pipeline.spec.meaning_hash)
    assert (reset.number, impact(known, reset)) == (3, [Impact(table.name, skipped=0, repeated=20)])
    commit(pipeline, known, base, reset)
    list(protocol.land(pipeline, 0))
    _merged(pipeline, name)
    assert rows(connections, name) == [(n, "a", 1.0) for n in range(40)]


def _merged(pipeline: Pipeline, table: str) -> MergedBatches:
    done = protocol.merge(pipeline, pipeline.destination(table))
    assert done
    return done


def test_other_endpoints_and_hashes_are_refused(
    sharded: Callable[..., Connections], topic: Callable[..., str], spark: SparkSession
) -> None:
    two = sharded(0, 1)
    flow = clickhouse_flow(topic(), ["append"])
    produce(bootstrap(two), flow.topic, random_changes(13, 50, 60, 1))
    pipeline = flow.pipeline(two, spark)
    list(protocol.land(pipeline, 0))
    protocol.merge(pipeline, pipeline.destinations()[0])
    for others in ((0, 1, 2), (1, 0), (0,)):
        changed = flow.pipeline(sharded(*others))
        with pytest.raises(ConfigurationError, match="rows of a key would be on two endpoints"):
            protocol.merge(changed, changed.destinations()[0])
    two = sharded(0, 1)
    for options in ({"hash_function": "cityHash64"}, {"shard_by": ["name"]}):
        changed = replace(flow, table_options={**flow.table_options, **options}).pipeline(two)
        with pytest.raises(ConfigurationError, match=r"rows were spread .* by sipHash64\(id Int64\)"):
            protocol.merge(changed, changed.destinations()[0])
        assert flow.pipeline(two).destinations()[0].committed(), "undone, it goes on"


def test_type_that_gives_rows_another_endpoint_is_refused(
    sharded: Callable[..., Connections], topic: Callable[..., str], spark: SparkSession
) -> None:
    """The table takes the narrower type as it is, and 5 as Int32 has another hash than as Int64: two rows of a key."""
    connections = sharded(0, 1)
    flow = clickhouse_flow(topic(), ["upsert_delete"])
    name = flow.table("upsert_delete")
    produce(bootstrap(connections), flow.topic, [put(n) for n in range(20)])
    pipeline = flow.pipeline(connections, spark)
    list(protocol.land(pipeline, 0))
    _merged(pipeline, name)
    shard = destination(pipeline, name).shards[0]
    lease = shard.store.lease()
    assert lease
    assert lease.spread_by == "sipHash64(id Int64)"
    shard.store.swap(lease, replace(lease, spread_by="sipHash64(id)"))  # as an older version wrote it
    produce(bootstrap(connections), flow.topic, [put(n, "b") for n in range(20)])
    list(protocol.land(pipeline, 0))
    _merged(pipeline, name)
    source = flow.spec_document["source"]
    columns = {**source["value"]["columns"], "id": "int"}
    narrower = {
        **source,
        "key": {**source["key"], "columns": {"id": "int"}},
        "value": {**source["value"], "columns": columns},
    }
    changed = replace(flow, overrides={**flow.overrides, "source": narrower}).pipeline(connections, spark)
    produce(bootstrap(connections), flow.topic, [put(n, "c") for n in range(20)])
    list(protocol.land(changed, 0))
    with pytest.raises(ConfigurationError, match=r"by sipHash64\(id Int64\), .* says sipHash64\(id Int32\)"):
        _merged(changed, name)
    _merged(flow.pipeline(connections, spark), name)
    assert rows(connections, name) == [(n, "c", 1.0) for n in range(20)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lost", [0, 1])
def test_endpoint_that_has_lost_its_table_is_filled_again_alone(
    mode: str, lost: int, sharded: Callable[..., Connections], topic: Callable[..., str], spark: SparkSession
) -> None:
    connections = sharded(0, 1)
    flow, records = (
        clickhouse_flow(topic(partitions=2), [mode], max_records=50, shard_by=["id"]),
        random_changes(17, 200, 60, 2),
    )
    produce(bootstrap(connections), flow.topic, records)
    pipeline, name = flow.pipeline(connections, spark), flow.table(mode)
    list(protocol.land(pipeline, 0))
    _merged(pipeline, name)
    with pytest.raises(ConfigurationError, match="rows, which would come twice"):
        pipeline.destination(name).drop_state()
    servers(connections)[lost].execute(f"DROP TABLE {name} SYNC")
    with pytest.raises(TableReplaced, match="offsets forget"):
        _merged(pipeline, name)
    assert pipeline.destination(name).drop_state()
    _merged(pipeline, name)
    assert rows(connections, name) == model.expected(records, mode)
    assert reconcile(pipeline, pipeline.destination(name), 0).wrong == []
