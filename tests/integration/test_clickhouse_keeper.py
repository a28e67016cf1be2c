"""Leases in the real KeeperMap: compare-and-set under a race, rows of topic-partitions, and what is refused."""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.batch import Batch, CommittedState
from jobs.destinations.clickhouse.keeper import KeeperStore
from jobs.destinations.clickhouse.state import Lease, PartitionWrite, state_text
from jobs.destinations.clickhouse.transitions import Phase, Span
from jobs.offsets import OffsetRange, TopicPartition
from jobs.watermark import Watermark
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection, Connections
from resources.errors import CommitFailed, Interrupted, Unavailable
from sql import quote


@pytest.fixture
def store(clickhouse: Path, connections: Connections) -> KeeperStore:
    assert clickhouse.exists()
    connection = connections.get("clickhouse", ClickHouseConnection)
    store = KeeperStore(ClickHouseServer("clickhouse", connection, connection.endpoints[0]), f"p/{uuid.uuid4().hex}/1")
    store.prepare()
    return store


def _batch(number: int, tps: list[TopicPartition]) -> Batch:
    ranges = {tp: OffsetRange(0, 10) for tp in tps}
    ids = {tp.topic: f"id-{tp.topic}" for tp in tps}
    return Batch("p", number, f"c{number}", None, ranges, ids, 0, "hash")


def test_lease_is_read_as_written(store: KeeperStore) -> None:
    assert store.lease() is None
    spread = Lease(endpoints=("h:1", "h:2"), spread_by="sipHash64(id)")
    first = store.swap(None, replace(spread, epoch=1, owner="a", run_id="it's \\ odd\n"))
    assert store.lease() == first
    second = store.swap(first, replace(first, batch=7, commit_id="c", chunk_rows=5))
    assert store.lease() == second
    assert second.change != first.change


def test_state_of_5000_partitions_fits(store: KeeperStore) -> None:
    tps = [TopicPartition(f"topic-{n % 3}", n // 3) for n in range(5000)]
    times = {tp: 1_790_000_000_000 + hash(tp) % 10**9 for tp in tps}
    state = CommittedState("p", 9, "c", {tp: hash(tp) % 10**12 for tp in tps}, {"t": "i"}, "h", Watermark(times, 5))
    written = store.swap(None, Lease(state=state_text(state)))
    assert written.committed == state
    assert (store.lease() or Lease()).committed == state


def test_second_first_run_is_refused(store: KeeperStore) -> None:
    store.swap(None, Lease(epoch=1, owner="a"))
    with pytest.raises(CommitFailed):
        store.swap(None, Lease(epoch=1, owner="b"))


def test_run_whose_lease_was_taken_is_interrupted(store: KeeperStore) -> None:
    mine = store.swap(None, Lease(epoch=1, owner="a"))
    store.swap(mine, replace(mine, epoch=2, owner="b"))
    with pytest.raises(Interrupted):
        store.swap(mine, replace(mine, batch=3))


def test_of_many_racing_takers_one_wins_each_round(store: KeeperStore) -> None:
    lease = store.swap(None, Lease())
    wins: list[str] = []
    for _ in range(10):
        seen, barrier = lease, threading.Barrier(4)
        won: list[Lease] = []

        def take(owner: str, seen: Lease = seen, won: list[Lease] = won, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            with suppress(CommitFailed, Interrupted):
                won.append(store.swap(seen, replace(seen, epoch=seen.epoch + 1, owner=owner)))

        runs = [threading.Thread(target=take, args=(f"run-{n}",)) for n in range(4)]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        assert len(won) == 1
        lease = won[0]
        wins.append(lease.owner)
    assert store.lease() == lease
    assert lease.epoch == 10


@pytest.mark.parametrize("count", [150, 450])
def test_partition_rows_move_together_and_only_for_the_newest_owner(store: KeeperStore, count: int) -> None:
    tps = [TopicPartition("t", n) for n in range(count)]
    old = store.swap(None, Lease(epoch=1, owner="a"))
    before = PartitionWrite(_batch(1, tps), Phase.BEFORE, {tp: Span(tp.partition, tp.partition + 9) for tp in tps})
    store.write(old, before, [])
    assert store.partitions(tps) == {tp: before.row(tp) for tp in tps}

    new = store.swap(old, replace(old, epoch=2, owner="b"))
    after = replace(before, phase=Phase.AFTER)
    store.write(new, after, tps)
    with pytest.raises(Interrupted):
        store.write(old, before, tps)
    store.write(old, replace(before, phase=Phase.AFTER, confirms=True), tps)
    assert store.partitions(tps) == {tp: after.row(tp) for tp in tps}


def test_rows_of_5000_partitions_with_long_names(store: KeeperStore) -> None:
    tps = [TopicPartition(f"a-topic-with-a-name-of-fifty-characters-{n % 500:010}", n // 500) for n in range(5000)]
    held = store.swap(None, Lease(epoch=1, owner="a"))
    before = PartitionWrite(_batch(1, tps), Phase.BEFORE, {tp: Span(tp.partition, 10**12) for tp in tps})
    assert store.partitions(tps) == {}
    store.write(held, before, [])
    after = replace(before, phase=Phase.AFTER)
    store.write(held, after, tps)
    assert store.partitions(tps) == {tp: after.row(tp) for tp in tps}


def test_a_page_may_be_larger_than_a_parameter(store: KeeperStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """ClickHouse accepts 128 KB in one. Some of 50,000 topic-partitions share a page of 200 KB."""
    monkeypatch.setattr("jobs.destinations.clickhouse.pages._PAGES", 1)
    tps = [TopicPartition("".join(uuid.uuid4().hex for _ in range(6)), 0) for _ in range(2000)]
    held = store.swap(None, Lease(epoch=1, owner="a"))
    before = PartitionWrite(_batch(1, tps), Phase.BEFORE, {tp: Span(0, 9) for tp in tps})
    store.write(held, before, [])
    (page,) = store.pages
    assert sum(len(row["state"]) for row in store._rows([f"{store.name}/{page}"])) > 200_000
    after = replace(before, phase=Phase.AFTER, confirms=True)
    store.write(held, after, tps)
    assert store.partitions(tps) == {tp: after.row(tp) for tp in tps}


@pytest.mark.parametrize("count", [150, 450])
def test_rows_are_not_set_back_by_a_write_that_arrives_late(
    store: KeeperStore, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The client gave up on a write and sent it again; the first one reaches Keeper after later writes of this run."""
    sent, execute = list[tuple[Any, ...]](), ClickHouseServer.execute

    def noted(server: ClickHouseServer, *statement: Any) -> None:
        sent.append(statement)
        execute(server, *statement)

    monkeypatch.setattr(ClickHouseServer, "execute", noted)
    tps = [TopicPartition("t", n) for n in range(count)]
    held = store.swap(None, Lease(epoch=1, owner="a"))
    first = PartitionWrite(_batch(1, tps), Phase.BEFORE, {tp: Span(0, 9) for tp in tps})
    confirmed = replace(first, phase=Phase.AFTER, confirms=True)
    store.write(held, first, [])
    store.write(held, confirmed, tps)
    late = sent[-1]
    second = PartitionWrite(_batch(2, tps), Phase.BEFORE, {tp: Span(10, 19) for tp in tps[::2]})
    store.write(held, second, tps)
    execute(store.server, *late)
    assert store.partitions(tps) == {tp: (second if tp in second.spans else confirmed).row(tp) for tp in tps}


def test_unreachable_server_is_transient() -> None:
    connection = ClickHouseConnection(kind="clickhouse", endpoints=["127.0.0.1:1"], timeout_seconds=1)
    with pytest.raises(Unavailable):
        ClickHouseServer("nowhere", connection, "127.0.0.1:1").rows("SELECT 1")


@pytest.mark.slow
def test_pages_stand_in_for_the_rows_of_earlier_versions(store: KeeperStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of more than 200 topic-partitions have them in pages. A page stays, however small the pipeline becomes."""
    tps = [TopicPartition("t", n) for n in range(1500)]
    held = store.swap(None, Lease(epoch=1, owner="a"))
    old = PartitionWrite(_batch(1, tps), Phase.AFTER, {tp: Span(0, 9) for tp in tps[:1200]})
    with monkeypatch.context() as earlier:
        earlier.setattr("jobs.destinations.clickhouse.keeper._MOST_OWN_ROWS", 10_000)
        store.write(held, old, [])
    expected = {tp: old.row(tp) for tp in tps[:1200]}
    assert store.partitions(tps) == expected

    some = PartitionWrite(_batch(2, tps), Phase.BEFORE, {tp: Span(10, 10 + tp.partition) for tp in tps[900:1300]})
    store.write(held, some, store.partitions(tps))
    expected |= {tp: some.row(tp) for tp in tps[900:1300]}
    assert replace(store, pages=set()).partitions(tps) == expected
    assert replace(store, pages=set()).partitions(tps[1100:1290]) == {tp: expected[tp] for tp in tps[1100:1290]}

    few = PartitionWrite(_batch(3, tps[1250:1260]), Phase.AFTER, {tp: Span(5, 2000) for tp in tps[1250:1260]})
    other = replace(store, pages=set())
    other.write(held, few, other.partitions(tps[1250:1260]))
    expected |= {tp: few.row(tp) for tp in tps[1250:1260]}
    assert replace(store, pages=set()).partitions(tps) == expected
    state = store.state()
    assert state
    shown = {TopicPartition(p.topic, p.partition): (p.first, p.last, p.phase, p.batch) for p in state.partitions}
    assert shown == {tp: (*row.span, row.phase, row.batch) for tp, row in expected.items()}
    store.forget(held)
    assert replace(store, pages=set()).partitions(tps) == {}


def test_the_local_zookeeper_has_memory_for_many_large_writes(store: KeeperStore) -> None:
    """It keeps the last 500; with thousands of topic-partitions a batch has ten of them (it died after 15 batches)."""
    table = ".".join(quote("clickhouse", name) for name in (store.table[0], f"large_{uuid.uuid4().hex[:8]}"))
    path = f"{store.server.connection.keeper_path.rstrip('/')}/{uuid.uuid4().hex}"
    columns = "(`name` String, `text` String)"
    store.server.execute(f"CREATE TABLE {table} {columns} ENGINE = KeeperMap('{path}') PRIMARY KEY `name`")
    try:
        for _ in range(600):
            store.server.execute(
                f"INSERT INTO {table} SELECT 'one', repeat('x', 500000)",
                settings={"keeper_map_strict_mode": 0, "insert_keeper_max_retries": 0, "async_insert": 0},
            )
    finally:
        store.server.execute(f"DROP TABLE {table}")
    assert store.lease() is None
