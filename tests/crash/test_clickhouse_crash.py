"""ClickHouse under fire: killed runs, late inserts, killed servers. No row lost or doubled.

Kills at every boundary are in `test_every_boundary.py`, sleepers and two runs at once in `test_two_runs.py`.

An append table shows every lost and every doubled row, so it takes most of the fire.
"""

from __future__ import annotations

import http.client
import os
import random
import signal
import time
import urllib.parse
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.destinations.clickhouse.keeper import KeeperStore
from resources.clickhouse import ClickHouseServer, to_arrow_file
from resources.connections import ClickHouseConnection, Connections
from resources.errors import BatchmergeError
from resources.local import stack as local_stack
from resources.local.ports import is_free
from tests.kit.clickhouse import clickhouse_flow, destination, rows, servers
from tests.kit.driven_log import DrivenLog
from tests.kit.processes import asleep, end_of, until_stopped
from tests.kit.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("clickhouse")]


@pytest.fixture
def make_load(connections: Connections, stack: Path, topic: Callable[..., str]) -> Callable[..., DrivenLog]:
    def make(modes: list[str], max_records: int = 100, **options: object) -> DrivenLog:
        return DrivenLog(clickhouse_flow(topic(partitions=2), modes, max_records, **options), connections, stack)

    return make


@pytest.fixture
def many_partitions(connections: Connections, stack: Path, topic: Callable[..., str]) -> DrivenLog:
    """Of so many topic-partitions that their state is in pages."""
    flow = clickhouse_flow(topic(partitions=210), ["append"])
    return DrivenLog(flow, connections, stack, partitions=210)


def test_killed_steps_of_many_topic_partitions(many_partitions: DrivenLog) -> None:
    for point in ("leased", "before", "inserted", "after", "committed"):
        many_partitions.grow(150)
        many_partitions.kill(f"clickhouse.{point}")
        many_partitions.finish(point)


@pytest.mark.parametrize("point", ["leased", "before", "inserted", "after"])
def test_run_that_wakes_up_late_changes_no_page(point: str, many_partitions: DrivenLog) -> None:
    many_partitions.grow(150)
    sleeper = many_partitions.start(f"clickhouse.{point}")
    with asleep(sleeper):
        many_partitions.grow(150)
        many_partitions.finish(point)
    assert "Interrupted" in end_of(sleeper)[1]
    many_partitions.grow(150)
    many_partitions.finish(f"after {point} woke up")


def test_second_step_of_a_killed_merge_is_finished(make_load: Callable[..., DrivenLog]) -> None:
    # Room for four chunks: the three batches take two steps.
    load = make_load(["upsert_delete"], settings={"non_replicated_deduplication_window": 8})
    load.grow(300)
    load.kill("clickhouse.before:2")
    load.finish()


def test_killed_run_is_finished_though_the_tokens_are_forgotten(make_load: Callable[..., DrivenLog]) -> None:
    """Other writers have used up the deduplication window: the rows' coordinates show what is there."""
    load = make_load(["append"], settings={"non_replicated_deduplication_window": 12})
    load.grow(150)
    load.kill("clickhouse.inserted")
    (server,) = servers(load.connections)
    table = load.flow.table("append")
    there = rows(load.connections, table)
    assert there
    for n in range(20):
        server.execute(f"INSERT INTO {table} (id, name, amount) SELECT 1000000 + {n}, 'other', 0")
    load.run()
    server.execute(f"DELETE FROM {table} WHERE id >= 1000000", settings={"mutations_sync": 1})
    load.check()


def test_late_insert_of_a_dead_run_is_stopped(make_load: Callable[..., DrivenLog]) -> None:
    """It has passed the fence, and hangs in the middle of its data while the next run takes over."""
    load = make_load(["append"])
    load.grow(150)
    load.kill("clickhouse.before")
    pipeline = load.flow.pipeline(load.connections)
    shard = destination(pipeline, load.flow.table("append")).shards[0]
    lease = KeeperStore(shard.server, shard.store.name).lease()
    assert lease
    assert lease.left_behind
    row = {"id": 1, "amount": 1.0, "_topic": "t", "_partition": 0, "_offset": 0}
    columns = {name: [value] * 10_000 for name, value in row.items()}
    columns["name"] = [f"late {os.urandom(200).hex()}" for _ in range(10_000)]  # stays large when it is compressed
    kinds = {c.name: c.arrow for c in shard.layout.columns}
    body = to_arrow_file(pa.table({n: pa.array(columns[n], kinds[n]) for n in shard.statements.wire}))
    query_id = f"{shard.query_prefix}{lease.epoch}-late"
    connection = load.connections.get("clickhouse", ClickHouseConnection)
    asked = {
        "query": shard.statements.insert(),
        "query_id": query_id,
        "async_insert": "0",
        "param_lease": shard.store.name,
        "param_owner": lease.owner,
    }
    assert connection.password
    login = f"{connection.username}:{connection.password.get_secret_value()}"
    late = http.client.HTTPConnection(connection.endpoints[0], timeout=120)
    late.putrequest("POST", "/?" + urllib.parse.urlencode(asked))
    late.putheader("Authorization", "Basic " + b64encode(login.encode()).decode())
    late.putheader("Content-Length", str(len(body)))
    late.endheaders()
    # Up to 256 KB are read before a query begins (max_query_size).
    late.send(body[: len(body) // 2])
    until(lambda: _running(shard.server, query_id) == 1)

    load.run()
    assert _running(shard.server, query_id) == 0
    answer = _answer(late, body[len(body) // 2 :])
    assert answer is None or answer >= 400
    load.check()


def test_clickhouse_is_killed_in_the_middle_of_an_insert(make_load: Callable[..., DrivenLog]) -> None:
    load = make_load(["append"], max_records=200_000, chunk_rows=20_000)
    load.grow(60_000)
    run = load.flow.start(load.home)
    shard = destination(load.flow.pipeline(load.connections), load.flow.table("append")).shards[0]
    until(lambda: _running(shard.server, shard.query_prefix) > 0 or run.poll() is not None)
    _kill(load.home, "clickhouse")
    local_stack.up(load.home, ["clickhouse"], print)
    code, output = end_of(run)
    # It may have waited for the server and gone on, or given up for the next run.
    assert code in (0, 3), output
    load.finish()


@pytest.mark.parametrize("point", ["clickhouse.leased", "clickhouse.before", "clickhouse.inserted", "clickhouse.after"])
def test_zookeeper_is_killed_before_each_state_write(point: str, make_load: Callable[..., DrivenLog]) -> None:
    load = make_load(["append"])
    load.grow(150)
    run = load.start(point)
    try:
        until_stopped(run)
        _kill(load.home, "zookeeper")
        os.kill(run.pid, signal.SIGCONT)
        time.sleep(random.Random(point).random())
    finally:
        local_stack.up(load.home, ["clickhouse"], print)
    code, output = end_of(run)
    assert code in (0, 3), output
    until(lambda: _keeper_answers(load.connections))
    load.finish()


def test_keeper_hangs_in_the_middle_of_a_run(make_load: Callable[..., DrivenLog]) -> None:
    """As when the network between ClickHouse and its keeper is cut: requests get no answer, then the session ends."""
    load = make_load(["append"])
    load.grow(150)
    run = load.start("clickhouse.before")
    keeper = next(s.pid for s in local_stack.status(load.home) if s.name == "zookeeper")
    assert keeper
    until_stopped(run)
    os.kill(keeper, signal.SIGSTOP)
    try:
        os.kill(run.pid, signal.SIGCONT)
        until(lambda: not _keeper_answers(load.connections) or run.poll() is not None)
    finally:
        os.kill(keeper, signal.SIGCONT)
    code, output = end_of(run)
    assert code in (0, 3), output
    until(lambda: _keeper_answers(load.connections))
    load.finish()


def _running(server: object, prefix: str) -> int:
    found = server.rows(  # type: ignore[attr-defined]
        "SELECT count() AS n FROM system.processes WHERE startsWith(query_id, {prefix:String})", {"prefix": prefix}
    )
    return int(found[0]["n"])


def _keeper_answers(connections: Connections) -> bool:
    """Within ten seconds; ClickHouse itself would wait much longer."""
    known = connections.get("clickhouse", ClickHouseConnection)
    impatient = known.model_copy(update={"statement_timeout_seconds": 10})
    try:
        ClickHouseServer("probe", impatient, known.endpoints[0]).rows("SELECT count() FROM batchmerge_state")
    except BatchmergeError:
        return False
    return True


def _kill(home: Path, service: str) -> None:
    """Until its ports are free: `up` would give it others, which the test does not know."""

    def now() -> local_stack.ServiceStatus:
        return next(s for s in local_stack.status(home) if s.name == service)

    pid, ports = now().pid, now().ports.values()
    assert pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: now().state == "died" and all(map(is_free, ports)))


def _answer(late: http.client.HTTPConnection, rest: bytes) -> int | None:
    """The status of a request after the rest of its body; None where the server has hung up."""
    try:
        late.send(rest)
        return late.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        late.close()
