"""Kills at random moments over a large load: nothing is lost or doubled.

BATCHMERGE_KILLS and BATCHMERGE_KILL_ROWS say how large: `make crash` kills 200 times over 5 million rows.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from resources.connections import Connections
from tests.kit.clickhouse import clickhouse_flow, servers
from tests.kit.records import bootstrap
from tests.kit.waiting import PATIENCE

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("BATCHMERGE_KILLS", "4"))
ROWS = int(os.environ.get("BATCHMERGE_KILL_ROWS", "40000"))
PARTITIONS = 4


def test_random_kills_lose_and_double_nothing(
    clickhouse: Path, connections: Connections, topic: Callable[..., str]
) -> None:
    # Small enough that the load outlasts the kills: a run that lives commits at most two.
    batch = max(1000, ROWS // (KILLS + 1))
    flow = clickhouse_flow(
        topic(partitions=PARTITIONS), ["append"], max_records=batch, chunk_rows=max(100, batch // 10)
    )
    _fill(connections, flow.topic)
    dice, kills = random.Random(ROWS), 0
    while kills < KILLS:
        run = flow.start(clickhouse, batches=2)
        try:
            # Between the import of the first module and the end of two batches.
            run.wait(timeout=dice.uniform(1, 12))
            assert run.returncode == 0
            if _is_caught_up(connections, flow.table("append")):
                break
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGKILL)
            run.wait()
            kills += 1
        finally:
            assert run.stdout
            run.stdout.close()
    code, output = flow.run(clickhouse)
    assert code == 0, output
    (server,) = servers(connections)
    (found,) = server.rows(f"SELECT count() AS n, uniqExact(id) AS ids, sum(id) AS total FROM {flow.table('append')}")
    assert found == {"n": ROWS, "ids": ROWS, "total": ROWS * (ROWS - 1) // 2}
    print(f"{kills} kills over {ROWS} rows")


def _is_caught_up(connections: Connections, table: str) -> bool:
    return bool(servers(connections)[0].rows(f"SELECT count() AS n FROM {table}")[0]["n"] == ROWS)


def _fill(connections: Connections, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap(connections), "linger.ms": 50})
    for n in range(ROWS):
        value = b'{"id":%d,"name":"n%d","amount":0.5,"op":"c"}' % (n, n)
        producer.produce(topic, key=b'{"id":%d}' % n, value=value, partition=n % PARTITIONS)
        if n % 10_000 == 0:
            producer.poll(0)
            assert producer.flush(PATIENCE) == 0
    assert producer.flush(PATIENCE) == 0
