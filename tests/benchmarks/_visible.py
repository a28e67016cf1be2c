"""How soon records are visible that come evenly: from being produced until an Iceberg table has so many rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from resources.connections import Connections, KafkaConnection
from tests.benchmarks._records import as_json, rows
from tests.benchmarks._workload import PARTITIONS, fill
from tests.kit.waiting import PATIENCE, until

_WARM_SECONDS, _PARTS = 10, 10


def rows_of(table: Table | None) -> int:
    """Of a table that is only appended to: how many rows it has now, as its newest snapshot says."""
    found = table.current_snapshot() if table else None
    return rows_in(found) if found else 0


def rows_in(snapshot: Snapshot) -> int:
    return int(getattr(snapshot.summary, "additional_properties", {}).get("total-records", 0))


def seconds_until_visible(
    connections: Connections, topic: str, rows_now: Callable[[], int], rate: int, seconds: int
) -> list[float]:
    """Of each tenth of a second's records how long they took, after the first seconds.

    Args:
        topic: with nothing in it.
        rows_now: how many rows the table has, which gets a row for each record; asked 20 times a second.
    """
    sent, each = list[tuple[int, float]](), rate // _PARTS

    def send() -> None:
        servers = connections.get("kafka", KafkaConnection).bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "compression.type": "lz4"})
        for turn in range((_WARM_SECONDS + seconds) * _PARTS):
            began = time.monotonic()
            ids = np.arange(turn * each, (turn + 1) * each)
            for key, value, n in zip(as_json(pa.table({"id": ids})), as_json(rows(ids)), ids.tolist(), strict=True):
                producer.produce(topic, key=key, value=value, partition=n % PARTITIONS)
            producer.flush()
            sent.append(((turn + 1) * each, began))
            time.sleep(max(0.0, began + 1 / _PARTS - time.monotonic()))

    fill(connections, topic, range(PARTITIONS))
    until(lambda: rows_now() == PARTITIONS, what="first rows")
    sender, seen, took = threading.Thread(target=send), 0, list[float]()
    sender.start()
    first, last = _WARM_SECONDS * rate, (_WARM_SECONDS + seconds) * rate
    end = time.monotonic() + PATIENCE
    while seen < last:
        assert time.monotonic() < end, f"{last - seen:,} records are not in the table"
        count, now = rows_now() - PARTITIONS, time.monotonic()
        took += [now - began for after, began in list(sent) if seen < after <= count and after > first]
        seen = max(seen, count)
        time.sleep(0.05)
    sender.join()
    return took
