"""Sessions of the local Spark share its Python workers, as resources/spark_connect/server.py promises."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa

from resources.connections import Connections, SparkConnection
from resources.spark import open_session


def _parents(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"parent": [os.getppid()]})


def _daemons(connections: Connections, role: str) -> set[int]:
    """Process ids of the Python daemons that serve a session's tasks."""
    spark = open_session(connections.get("spark", SparkConnection), role, {})
    try:
        return {row.parent for row in spark.range(8).mapInArrow(_parents, "parent long").collect()}
    finally:
        spark.stop()


def test_one_python_daemon_serves_all_sessions(connections: Connections) -> None:
    first, second = _daemons(connections, "shared/first"), _daemons(connections, "shared/second")
    assert first == second
    assert len(first) == 1
