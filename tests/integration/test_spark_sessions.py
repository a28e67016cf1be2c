"""Sessions of the local Spark share its Python workers, as resources/spark_connect/server.py promises, and these have
our modules from jobs/spark_daemon.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from resources.connections import Connections, SparkConnection
from resources.errors import Unavailable
from resources.spark import open_session
from resources.spark_errors import spark_errors
from tests.kit.engine import catalog
from tests.kit.network import Wire, wire_to
from tests.kit.waiting import until
from tests.kit.web import Handler, serving

# Many more than are waited for: the giant is stopped once the small one is done.
_GIANT = 1000
_SHARE = 80


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


_SECOND = """
import sys
from pyspark.sql import functions as F
from resources.connections import SparkConnection
from resources.spark import open_session
spark = open_session(SparkConnection(kind="spark", remote=sys.argv[1]), "again/table", {})
spark.catalog.dropTempView("seen")
spark.range(int(sys.argv[2])).createOrReplaceTempView("seen")
print(spark.table("seen").withColumn("one", F.lit(1)).count())
"""


@pytest.mark.slow
def test_a_run_reads_its_own_view_and_not_that_of_the_run_before(connections: Connections) -> None:
    """Each process counts its plans from 0, and Spark's server remembers what plans of a session were resolved to."""
    remote = connections.get("spark", SparkConnection).remote
    assert remote
    for rows in ("3", "5"):
        command = [sys.executable, "-c", _SECOND, remote, rows]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.stdout == f"{rows}\n", found.stderr


def test_a_session_that_has_ended_is_opened_again_under_its_id(connections: Connections) -> None:
    """Otherwise each that timed out would cost all later runs of its role a request."""
    ids = []
    for _ in range(3):
        spark = open_session(connections.get("spark", SparkConnection), "ended/landing", {})
        ids.append(spark.session_id)  # type: ignore[attr-defined]
        spark.stop()
    assert len(set(ids)) == 1


def test_a_catalog_of_changed_settings_is_another_one(connections: Connections, tmp_path: Path) -> None:
    known, prefix = connections.get("spark", SparkConnection), "spark.sql.catalog.changing"
    ids = set[str]()
    for folder in ("old", "old", "new"):
        place = {f"{prefix}.type": "hadoop", f"{prefix}.warehouse": str(tmp_path / folder)}
        spark = open_session(known, "changing/landing", {prefix: "org.apache.iceberg.spark.SparkCatalog", **place})
        spark.sql("CREATE TABLE IF NOT EXISTS changing.n.t (id INT) USING iceberg")
        ids.add(spark.session_id)  # type: ignore[attr-defined]
    spark.stop()
    assert (tmp_path / "new" / "n" / "t").is_dir()
    assert len(ids) == 1, "runs find what a dead one has left by it"


def test_jobs_do_not_carry_the_settings_of_catalogs(connections: Connections) -> None:
    """Spark's event log would have the secrets among them (see also `tests/production/test_spark_cluster.py`). Those of
    a catalog that is down stay, for when it is back."""
    known, lake = connections.get("spark", SparkConnection), catalog(connections)
    gone = {"type": "rest", "uri": "http://127.0.0.1:1"}
    settings = {
        **lake.spark_settings(),
        "spark.sql.catalog.gone": "org.apache.iceberg.spark.SparkCatalog",
        **{f"spark.sql.catalog.gone.{name}": value for name, value in gone.items()},
    }
    for _ in range(2):  # also in the session of the run before
        spark = open_session(known, "carrying/landing", settings)
        carried = {name for name in spark.conf.getAll if re.match(r"spark\.sql\.catalog\.\w+\.", name)}
        assert carried == {"spark.sql.catalog.gone.type", "spark.sql.catalog.gone.uri"}
        assert spark.sql("SHOW NAMESPACES IN lake").schema
    spark.stop()


def test_a_catalog_is_made_once_as_soon_as_it_answers(connections: Connections) -> None:
    """And again with other credentials, whatever a query has made meanwhile."""
    known, prefix, asked = connections.get("spark", SparkConnection), "spark.sql.catalog.late", list[str]()

    class Late(Handler):
        is_up = False

        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"].removeprefix("Bearer "))
            self.answer(200 if self.is_up else 403, b'{"defaults": {}, "overrides": {}}')

    def opened(uri: str, token: str) -> tuple[list[str], bool]:
        """The tokens with which the catalog was asked meanwhile, and whether the session carries its settings after."""
        asked.clear()
        settings = {f"{prefix}.type": "rest", f"{prefix}.uri": uri, f"{prefix}.token": token}
        spark = open_session(known, "late/landing", {prefix: "org.apache.iceberg.spark.SparkCatalog", **settings})
        return asked, not settings.keys().isdisjoint(spark.conf.getAll)

    with serving(Late) as uri:
        assert opened(uri, "old") == (["old"], True)
        Late.is_up = True
        assert opened(uri, "old") == (["old"], False)
        assert opened(uri, "old") == ([], False)
        assert opened(uri, "new") == (["new"], False)
        Late.is_up = False
        assert opened(uri, "newer") == (["newer"], True)
        Late.is_up = True
        spark = open_session(known, "late/landing", {})
        assert spark.sql("SELECT late.system.iceberg_version()").schema
        assert opened(uri, "newest") == (["newest"], False)
    spark.stop()


def test_a_small_batch_does_not_wait_for_another_pipelines_giant_one(connections: Connections, tmp_path: Path) -> None:
    known = connections.get("spark", SparkConnection)
    giant, small = open_session(known, "giant/landing", {}), open_session(known, "small/landing", {})

    def done() -> int:
        return len(list(tmp_path.iterdir()))

    def run_small() -> None:
        assert len(small.range(0, 4, 1, 4).mapInArrow(_quick, "id long").collect()) == 4

    run_small()  # the first one of a session, or of a server, takes longer
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(giant.range(0, _GIANT, 1, _GIANT).mapInArrow(_slow(tmp_path), "id long").collect)
        try:
            until(lambda: done() > 0, what="the giant's first task")
            run_small()
            waited_for = done()
        finally:
            giant.interruptAll()
        assert waited_for < _GIANT // 2, "its tasks stood behind those of the giant"
        assert work.exception(), "the giant was done"
    giant.stop()
    small.stop()


@pytest.mark.slow
def test_a_table_of_many_jobs_leaves_others_their_share(connections: Connections, tmp_path: Path) -> None:
    """Each table has a pool: by jobs one of five would have five shares of six."""
    known = connections.get("spark", SparkConnection)
    few, many = open_session(known, "one/few", {}), open_session(known, "one/many", {})
    (theirs := tmp_path / "theirs").mkdir()
    (ours := tmp_path / "ours").mkdir()

    def run(spark: SparkSession, folder: Path, first: int, tasks: int) -> None:
        spark.range(first, first + tasks, 1, tasks).mapInArrow(_slow(folder), "id long").collect()

    def done() -> int:
        return len(list(theirs.iterdir()))

    with ThreadPoolExecutor(5) as pool:
        work = [pool.submit(run, many, theirs, n * _SHARE, _SHARE) for n in range(5)]
        until(lambda: done() > 0, what="the first task")
        before = done()
        run(few, ours, 0, _SHARE)
        meanwhile = done() - before
        many.interruptAll()
        for one in work:
            one.exception()
    for spark in (few, many):
        spark.stop()
    assert meanwhile < 1.5 * _SHARE


def test_what_was_cut_off_goes_on_when_the_network_is_back(
    connections: Connections, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with _behind_wire(connections) as (wire, known), ThreadPoolExecutor(1) as pool:
        spark = open_session(known, "cut/landing", {})
        work = pool.submit(spark.range(0, 20, 1, 20).mapInArrow(_slow(tmp_path), "id long").collect)
        until(lambda: list(tmp_path.iterdir()), what="the first task")
        wire.cut()
        until(lambda: "does not answer" in caplog.text, what="word of it")
        wire.restore()
        assert len(work.result()) == 20
        spark.stop()
    assert "cut/landing" in caplog.text


def test_a_server_that_is_gone_is_not_waited_for_for_long(
    connections: Connections, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own patience is ten minutes."""
    monkeypatch.setattr("resources.spark._TRIES", 5)
    with _behind_wire(connections) as (wire, known), ThreadPoolExecutor(1) as pool:
        spark = open_session(known, "gone/landing", {})
        policies = spark.client.get_retry_policies()  # type: ignore[operator]
        work = pool.submit(_collected, spark, tmp_path)
        until(lambda: list(tmp_path.iterdir()), what="the first task")
        wire.cut()
        with pytest.raises(Unavailable, match="Spark does not answer"):
            work.result()
    assert [policy.max_retries for policy in policies] == [5]


def _collected(spark: SparkSession, folder: Path) -> list[Row]:
    with spark_errors("gone/landing"):
        found: list[Row] = spark.range(0, 20, 1, 20).mapInArrow(_slow(folder), "id long").collect()
        return found


@contextmanager
def _behind_wire(connections: Connections) -> Iterator[tuple[Wire, SparkConnection]]:
    known = connections.get("spark", SparkConnection)
    assert known.remote
    with wire_to(known.remote.removeprefix("sc://")) as (wire, address):
        yield wire, known.model_copy(update={"remote": f"sc://{address}"})


def _slow(folder: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(0.2)
            (folder / str(batch.column(0)[0])).touch()
            yield batch

    return work


def _quick(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return iter(batches)
