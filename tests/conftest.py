"""Real services for the tests: Kafka, Spark and the lake for all, ClickHouse and BigQuery for those who ask.

They live in a data folder of the test session, on free ports, and stop with it. For quick rounds while developing,
BATCHMERGE_TEST_HOME names the data folder of a stack that you started yourself; it is used as it is and left running.
After a change in jobs, resources or sql its Spark has to be started again.
"""

from __future__ import annotations

import logging
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import settings
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from jobs.connections_file import load_connections
from resources.connections import Connections, KafkaConnection
from resources.local import ports
from resources.local import stack as local_stack
from resources.local.service import Lake
from tests.kit.engine import session
from tests.kit.examples import SEED
from tests.kit.records import forget_producers
from tests.kit.rest_catalog import rest_connections
from tests.kit.topics import make_topic
from tests.kit.waiting import PATIENCE

# A busy machine is no failure: no example has a time limit.
settings.register_profile("batchmerge", deadline=None)
settings.load_profile("batchmerge")

# After Spark refused a query, pytest adds its handler to PySpark's loggers too. They would make it write JSON, in all
# later tests.
PySparkLogger.addHandler = logging.Logger.addHandler  # type: ignore[method-assign, assignment]

# A build may run as a background job, where SIGINT is ignored. Dagster makes SIGTERM the same, all that tests start
# inherits it, and each takes the 30 s of being killed instead of ending when it is asked.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What is to listen on a port takes seconds to begin, and workers of pytest draw at the same time: each has its own.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    share = (ports.LAST - ports.FIRST) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    ports.FIRST += int(worker.removeprefix("gw")) * share
    ports.LAST = ports.FIRST + share

# Many small pieces of work: Java's second compiler costs a third of all time there, and hardly anything runs often
# enough to give it back. Several Javas share the machine. For the same reason Spark interprets its plans (a class that
# is generated and compiled for one small statement runs once) and plans each once, not again after each stage: that
# takes a fifth of its time here. (Benchmarks, soak and demo compile and adapt them.)
_SMALL = {
    "BATCHMERGE_SPARK_MEMORY": "1g",
    "BATCHMERGE_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
    " -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
    " -Dspark.sql.adaptive.enabled=false -Dspark.sql.shuffle.partitions=2",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The soak takes longest: begun last, it would be waited for with nothing else left to do."""
    items.sort(key=lambda item: "soak" not in item.path.parts)


def pytest_report_header() -> str:
    return f"drawn with BATCHMERGE_SEED={SEED}"


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a running stack with kafka, spark and lake; BATCHMERGE_HOME points to it."""
    with pytest.MonkeyPatch.context() as patch:
        existing = os.environ.get("BATCHMERGE_TEST_HOME")
        home = Path(existing).absolute() if existing else tmp_path_factory.mktemp("stack")
        patch.setenv("BATCHMERGE_HOME", str(home))
        patch.delenv("BATCHMERGE_CONNECTIONS", raising=False)
        for name, value in _SMALL.items():
            if name not in os.environ:
                patch.setenv(name, value)
        try:
            lake = cast(Lake, os.environ.get("BATCHMERGE_TEST_LAKE", "file"))
            local_stack.up(home, ["kafka", "spark"], print, None if existing else lake)
            yield home
        finally:
            forget_producers()
            if not existing:
                local_stack.down(home, print)


@pytest.fixture(scope="session")
def clickhouse(stack: Path) -> Path:
    """The data folder of the stack, with ClickHouse and its keeper running too."""
    local_stack.up(stack, ["clickhouse"], print)
    return stack


@pytest.fixture(scope="session")
def bigquery(stack: Path) -> Path:
    """The data folder of the stack, with the BigQuery emulator running too; skips where that cannot run."""
    _skip_unavailable("bigquery")
    local_stack.up(stack, ["bigquery"], print)
    return stack


@pytest.fixture
def connections(stack: Path) -> Connections:
    """What `batchmerge up` wrote. With `clickhouse` or `bigquery`, name that fixture before this one."""
    return load_connections(stack / "connections.yaml")


@pytest.fixture(scope="session")
def spark(stack: Path) -> Iterator[SparkSession]:
    """One Spark session for all tests that run the engine in this process (`tests.kit.engine`)."""
    with session(load_connections(stack / "connections.yaml")) as opened:
        yield opened


@pytest.fixture
def topic(connections: Connections) -> Iterator[Callable[..., str]]:
    """Makes topics: `topic()`, `topic(partitions=4)`, `topic("orders", partitions=2, config={...})` -> unique name."""
    yield from _topics(connections)


@pytest.fixture(scope="module")
def module_topic(stack: Path) -> Iterator[Callable[..., str]]:
    """Like `topic`, for what the tests of a module share."""
    yield from _topics(load_connections(stack / "connections.yaml"))


def _topics(connections: Connections) -> Iterator[Callable[..., str]]:
    client = AdminClient({"bootstrap.servers": connections.get("kafka", KafkaConnection).bootstrap_servers})
    made: list[str] = []

    def make(prefix: str = "t", partitions: int = 1, config: dict[str, str] | None = None) -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        make_topic(client, name, partitions, config)
        made.append(name)
        return name

    yield make
    for pending in client.delete_topics(made).values() if made else ():
        if (problem := pending.exception(timeout=PATIENCE)) and "UNKNOWN_TOPIC" not in str(problem):
            raise problem


@pytest.fixture(scope="module")
def rest_file(stack: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A connections file like the stack's, but the lake is a REST catalog, which commits several tables at once."""
    with rest_connections(stack / "connections.yaml", tmp_path_factory.mktemp("rest")) as file:
        yield file


def _skip_unavailable(name: str) -> None:
    service = next(one for one in local_stack.SERVICES if one.name == name)
    if reason := service.unavailable():
        pytest.skip(reason)
