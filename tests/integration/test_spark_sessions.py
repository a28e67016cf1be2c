"""Sessions of the local Spark share its Python workers, as resources/spark_connect/server.py promises, and these have
our modules from jobs/spark_daemon.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa

from resources.connections import Connections, SparkConnection
from resources.spark import open_session


def _parents(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        # Nothing here imports the module.
        loaded = "jobs.iceberg.row_delta_task" in sys.modules
        yield pa.RecordBatch.from_pydict({"parent": [os.getppid()], "loaded": [loaded]})


def _daemons(connections: Connections, role: str) -> set[tuple[int, bool]]:
    """Process ids of the Python daemons that serve a session's tasks, and whether their workers had our modules."""
    spark = open_session(connections.get("spark", SparkConnection), role, {})
    try:
        found = spark.range(8).mapInArrow(_parents, "parent long, loaded boolean").collect()
        return {(row.parent, row.loaded) for row in found}
    finally:
        spark.stop()


def test_one_python_daemon_serves_all_sessions(connections: Connections) -> None:
    first, second = _daemons(connections, "shared/first"), _daemons(connections, "shared/second")
    assert first == second
    assert [loaded for _, loaded in first] == [True]
