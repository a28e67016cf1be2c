"""Sessions of the local Spark share its Python workers, as resources/spark_connect/server.py promises, and these have
our modules from jobs/spark_daemon.py."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from resources.connections import Connections, SparkConnection
from resources.spark import open_session
from tests.kit.waiting import until

_GIANT = 80


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


def test_a_small_batch_does_not_wait_for_another_pipelines_giant_one(connections: Connections, tmp_path: Path) -> None:
    known = connections.get("spark", SparkConnection)
    giant, small = open_session(known, "giant/landing", {}), open_session(known, "small/landing", {})

    def done() -> int:
        return len(list(tmp_path.iterdir()))

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(giant.range(0, _GIANT, 1, _GIANT).mapInArrow(_slow(tmp_path), "id long").collect)
        until(lambda: done() > 0, what="the giant's first task")
        assert len(small.range(0, 4, 1, 4).mapInArrow(_quick, "id long").collect()) == 4
        waited_for = done()
        work.result()
    giant.stop()
    small.stop()
    assert done() == _GIANT
    assert waited_for < _GIANT // 2, "its tasks stood behind those of the giant"


def _slow(folder: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(0.2)
            (folder / str(batch.column(0)[0])).touch()
            yield batch

    return work


def _quick(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(batches)
