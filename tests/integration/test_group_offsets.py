"""Offsets of consumer groups, asked for while a broker starts, or dies.

librdkafka's admin client has ended the process there (its issues 4605 and 5040): so a process of its own asks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from resources.local import stack as local_stack
from tests.kit.processes import lives
from tests.kit.waiting import until

_PRELUDE = """
import sys
from jobs.connections_file import load_connections
from resources.connections import KafkaConnection
from resources.errors import Unavailable
from resources.kafka import KafkaCluster
from resources.kafka_groups import commit_group, group_offsets
from resources.topic_partition import TopicPartition
connection = load_connections().get("kafka", KafkaConnection).model_copy(update={"timeout_seconds": 3})
cluster, partition = KafkaCluster("kafka", connection), TopicPartition("t", 0)
"""
_ASK = """
print([group_offsets(cluster, f"group-{n}", [partition]) for n in range(100)].count({}))
"""
# Until a line on its input says that the broker is back: then one answer ends it.
_KEEP_ASKING = """
import faulthandler, select, signal
faulthandler.register(signal.SIGUSR1)
ask = {
    "offsets": lambda n: group_offsets(cluster, f"group-{n}", [partition]),
    "members": lambda n: cluster.group_members(f"group-{n}"),
    "commit": lambda n: commit_group(cluster, f"group-{n}", {partition: n}),
}[sys.argv[1]]
n, back = 0, False
cluster.create_topic("t")
print("asks", flush=True)
while True:
    n += 1
    back = back or bool(select.select([sys.stdin], [], [], 0)[0])
    try:
        ask(n % 50)
        if back:
            break
    except Unavailable as problem:
        print(n, problem, file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a stack with Kafka alone, which has just begun to run."""
    folder = tmp_path_factory.mktemp("kafka")
    local_stack.up(folder, ["kafka"], print)
    try:
        yield folder
    finally:
        local_stack.down(folder, print)


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    found = {**os.environ, "BATCHMERGE_HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2])}
    found.pop("BATCHMERGE_CONNECTIONS", None)
    return found


# The first one: of the broker nobody has asked anything yet.
@pytest.mark.slow
def test_the_first_question_to_a_new_broker_crashes_nobody(environment: dict[str, str]) -> None:
    argv = [sys.executable, "-c", _PRELUDE + _ASK]
    asked = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stdout) == (0, "100\n"), asked.stderr


@pytest.mark.slow
def test_a_broker_that_dies_crashes_nobody(environment: dict[str, str], home: Path) -> None:
    asking = {}
    for what in ("offsets", "members", "commit"):
        argv = [sys.executable, "-c", _PRELUDE + _KEEP_ASKING, what]
        asking[what] = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        out = asking[what].stdout
        assert out
        assert out.readline() == "asks\n"
    try:
        _kill_broker(home)
        local_stack.up(home, ["kafka"], print)
        for process in asking.values():
            assert process.stdin
            process.stdin.close()
        for what, process in asking.items():
            assert _ended(process) == 0, what
    finally:
        for process in asking.values():
            process.kill()
            process.wait()


def _ended(process: subprocess.Popen[str]) -> int:
    """The exit code. A process that hangs says where, on its standard error."""
    try:
        return process.wait(120)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGUSR1)
        raise


def _kill_broker(home: Path) -> None:
    pid = next(service.pid for service in local_stack.status(home) if service.name == "kafka")
    assert pid
    broker = psutil.Process(pid)
    broker.kill()
    until(lambda: not lives(broker), what="end of the broker")
