"""What goes wrong outside: one clear error of the right class, nothing lost; after a repair the next run goes on."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resources.connections import Connection, Connections, IcebergConnection, KafkaConnection
from resources.errors import (
    BadRecords,
    BatchmergeError,
    StorageError,
    TerminalError,
    TopicMissing,
    TransientError,
    Unavailable,
)
from resources.iceberg import IcebergCatalog
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.network import with_connection
from tests.kit.records import Record


def put(key: int | None, value: object = ...) -> Record:
    good = {"id": key, "name": "a", "amount": 1.0, "op": "u"}
    return Record(0, key, good if value is ... else value)  # type: ignore[arg-type]


def clear(problem: BatchmergeError) -> str:
    """The message as a person gets it: one sentence or two, what to do, and nothing of a stack trace."""
    text = str(problem)
    assert problem.remedy, text
    for trace in ("\n", "Traceback", 'File "', "\tat ", "JVM stacktrace", "sqlalchemy", "org.apache"):
        assert trace not in text, text
    assert len(text) < 700, text
    return text


def ids(connections: Connections, catalog: str, table: str) -> list[int]:
    lake = IcebergCatalog(catalog, connections.get(catalog, IcebergConnection))
    return sorted(lake.require(table).scan().to_arrow()["id"].to_pylist())


# ---- Kafka ----------------------------------------------------------------------------------------------------------


def test_broker_that_is_not_there(connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        gone = KafkaConnection(kind="kafka", bootstrap_servers=address, timeout_seconds=2)
        lost: dict[str, Connection] = {name: connections.get(name, Connection) for name in connections.names()}
        engine = Engine(Flow(topic(), ["append"]), Connections({**lost, "kafka": gone}, "test"), spark)
        with pytest.raises(Unavailable) as caught:
            engine.land()
    assert address in clear(caught.value)
    back = Engine(engine.flow, connections, spark)
    back.produce(put(1))
    back.advance()
    assert back.read("append") == [(1, "a", 1.0)]


def test_missing_topic_then_empty_topic(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    with pytest.raises(TopicMissing) as caught:
        Engine(Flow(f"no-{uuid.uuid4().hex}", ["append"]), connections, spark).land()
    assert "create the topic" in clear(caught.value)
    empty = Engine(Flow(topic(), ["append", "upsert"]), connections, spark)
    assert empty.advance() == []
    assert (empty.read("append"), empty.destination("append").committed()) == ([], None)
    empty.produce(put(1))
    empty.advance()
    assert empty.read("append") == empty.read("upsert") == [(1, "a", 1.0)]


# ---- records --------------------------------------------------------------------------------------------------------


def test_bad_records_stop_the_batch_or_land_as_dead_letters(
    connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    engine = Engine(Flow(topic(), ["upsert"]), connections, spark)
    wrong = [
        put(None),
        put(2, "{undecodable"),
        put(3, {"id": 3, "name": 9_876_543_210, "amount": 1.0, "op": "u"}),
        put(4, {"id": 4, "name": "a", "amount": 1.0, "op": "unheard of"}),
    ]
    engine.produce(put(1), *wrong, put(5))
    strict = engine.edited(on_bad_record="fail")
    with pytest.raises(BadRecords) as caught:
        strict.advance()
    message = clear(caught.value)
    assert "4 bad records" in message
    assert f"{engine.flow.topic}-0@1" in message
    assert "9876543210" not in message
    assert caught.value.facts["quarantined"] == 4
    assert isinstance(caught.value, TerminalError)
    assert engine.pipeline.intermediate.committed() is None, "nothing was published"

    (landed,) = engine.advance()
    assert (landed.counts.read, landed.counts.landed, landed.counts.quarantined) == (6, 2, 4)
    assert engine.read("upsert") == [(1, "a", 1.0), (5, "a", 1.0)]
    table = engine.pipeline.intermediate.catalog.require(engine.pipeline.intermediate.identifier)
    dead_letters = [row for row in table.scan().to_arrow().sort_by("i").to_pylist() if row["error"]]
    assert [(r["error"]["stage"], r["error"]["kind"]) for r in dead_letters] == [
        ("key", "NullKey"),
        ("value", "undecodable"),
        ("value", "type"),
        ("value", "UnknownOperation"),
    ]
    assert dead_letters[1]["error"]["value"] == b"{undecodable"


# ---- catalog and warehouse: one of their own, that can be broken ----------------------------------------------------


class Frail:
    """A catalog and warehouse of its own below a folder, and a pipeline that lives in it altogether."""

    def __init__(self, folder: Path, connections: Connections, spark: SparkSession, topic: str) -> None:
        self.folder, self.name = folder, f"frail_{uuid.uuid4().hex[:8]}"
        self.database = folder / "catalog.db"
        self.warehouse = folder / "warehouse"
        self.database.touch()
        own = IcebergConnection(
            kind="iceberg", type="sql", uri=f"sqlite:///{self.database}", warehouse=f"file://{self.warehouse}"
        )
        self.connections = with_connection(connections, self.name, own)
        for key, value in IcebergCatalog(self.name, own).spark_settings().items():
            spark.conf.set(key, value)
        overrides: dict[str, object] = {"intermediate": {"connection": self.name}}
        flow = Flow(topic, ["append"], table_options={"connection": self.name}, overrides=overrides)
        self.engine = Engine(flow, self.connections, spark)

    def ids(self) -> list[int]:
        return ids(self.connections, self.name, self.engine.flow.table("append"))


@pytest.fixture
def frail(tmp_path: Path, connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> Frail:
    made = Frail(tmp_path, connections, spark, topic())
    made.engine.produce(put(1))
    return made


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Another process holds the write lock of a SQLite file."""
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
            "c.execute('BEGIN EXCLUSIVE'); print('held', flush=True); sys.stdin.read()",
            str(database),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.communicate("")


def test_locked_catalog(frail: Frail) -> None:
    frail.engine.advance()
    frail.engine.produce(put(2))
    with locked(frail.database), pytest.raises(TransientError) as caught:
        frail.engine.land()
    assert "locked" in clear(caught.value)
    frail.engine.land()
    with locked(frail.database), pytest.raises(TransientError) as caught:
        frail.engine.merge("append")
    assert "locked" in clear(caught.value)
    frail.engine.advance()
    assert frail.ids() == [1, 2]


def test_catalog_that_is_gone(frail: Frail) -> None:
    frail.engine.advance()
    frail.engine.produce(put(2))
    away = frail.database.with_suffix(".away")
    frail.database.rename(away)
    with pytest.raises(Unavailable, match="does not exist") as caught:
        frail.engine.advance()
    assert str(frail.database) in clear(caught.value)
    assert not frail.database.exists(), "an empty catalog in its place would look like a new pipeline"
    away.rename(frail.database)
    frail.engine.advance()
    assert frail.ids() == [1, 2]


def test_database_that_is_none(frail: Frail) -> None:
    frail.database.write_text("this is no database, and long enough to be taken for a damaged one" * 20)
    with pytest.raises(BatchmergeError) as caught:
        frail.engine.land()
    assert str(frail.name) in clear(caught.value) or "catalog" in clear(caught.value)


def test_warehouse_that_cannot_be_made(frail: Frail) -> None:
    frail.warehouse.write_text("a file where the folder should be")
    with pytest.raises(StorageError) as caught:
        frail.engine.advance()
    assert "warehouse" in clear(caught.value)
    frail.warehouse.unlink()
    frail.engine.advance()
    assert frail.ids() == [1]


def test_data_folder_that_spark_cannot_write(frail: Frail) -> None:
    frail.engine.advance()
    frail.engine.produce(put(2))
    (data,) = [p for p in frail.warehouse.rglob("data") if p.parent.name.endswith("_tmp")]
    kept = data.rename(data.with_name("kept"))
    data.write_text("a file where the folder should be")
    with pytest.raises(StorageError) as caught:
        frail.engine.land()
    assert "warehouse" in clear(caught.value)
    data.unlink()
    kept.rename(data)
    frail.engine.advance()
    assert frail.ids() == [1, 2]


def test_full_disk(tmp_path: Path, connections: Connections, spark: SparkSession, topic: Callable[..., str]) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root can mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        small = Frail(disk, connections, spark, topic())
        small.engine.produce(put(1))
        small.engine.advance()
        filler = disk / "filler"
        with filler.open("wb") as file, pytest.raises(OSError, match="No space left"):
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free)
        small.engine.produce(put(2))
        with pytest.raises(BatchmergeError) as caught:
            small.engine.advance()
        assert "disk" in clear(caught.value)
        filler.unlink()
        small.engine.advance()
        assert small.ids() == [1, 2]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
