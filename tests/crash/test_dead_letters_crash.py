"""kill -9 while dead letters are tried again or sent to their topic: each is in the tables once, and sent once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import failpoints
from jobs.dead_letters.listing import summary
from jobs.dead_letters.retry import retry
from resources.connections import Connections
from tests.kit.engine import Engine
from tests.kit.flow import ROOT, Flow
from tests.kit.letters import LARGE, WHERE, narrowed, put, read_all, tell
from tests.kit.records import Record

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("point", failpoints.RETRY)
def test_killed_retry_is_finished_by_the_next(
    point: str, stack: Path, connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    flow = Flow(topic(), ["append", "upsert_delete"], table_options=WHERE)
    before, after = narrowed(Engine(flow, connections, spark))
    tell(before, put(1, "first"), put(1, "large", amount=LARGE), put(2, "large", amount=LARGE))
    before.advance()
    tell(before, put(1, "newer"))
    before.advance()
    _kill(after, point, stack)
    retry(after.pipeline)
    assert summary(after.pipeline) == []
    assert after.read("upsert_delete") == [(1, "newer", 1.0), (2, "large", LARGE)]
    assert after.read("append") == [(1, "first", 1), (1, "large", LARGE), (1, "newer", 1), (2, "large", LARGE)]


@pytest.mark.parametrize("point", failpoints.RETRY)
def test_killed_retry_of_direct_landing_appends_once(
    point: str, stack: Path, connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    flow = Flow(topic(), ["append"], overrides={"intermediate": {"direct": True}}, table_options=WHERE)
    before, after = narrowed(Engine(flow, connections, spark))
    tell(before, put(1, "first"), put(2, "large", amount=LARGE))
    before.advance()
    _kill(after, point, stack)
    retry(after.pipeline)
    assert summary(after.pipeline) == []
    assert after.read("append") == [(1, "first", 1), (2, "large", LARGE)]


def test_letters_of_a_batch_that_was_never_committed_wait_for_it(
    stack: Path, connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    """Direct landing publishes them first; the batch may be cut otherwise when it is landed after all."""
    flow = Flow(topic(), ["append"], overrides={"intermediate": {"direct": True}}, table_options=WHERE)
    before, after = narrowed(Engine(flow, connections, spark))
    tell(before, put(1, "first"), put(2, "large", amount=LARGE), put(3, "large", amount=LARGE))
    flow.overrides["source"] = before.document["source"]
    code, output = flow.run(stack, failpoint="land.written")
    assert code == -signal.SIGKILL, output
    assert retry(after.pipeline).tried == 0
    after.edited(batch={"max_records": 2}).advance(1)
    done = retry(after.pipeline)
    assert (done.tried, done.recovered) == (1, 1)
    after.advance()
    assert retry(after.pipeline).recovered == 1
    assert summary(after.pipeline) == []
    assert after.read("append") == [(1, "first", 1), (2, "large", LARGE), (3, "large", LARGE)]


def _kill(engine: Engine, point: str, stack: Path) -> None:
    """Tries the letters again in a process that is killed at this boundary."""
    document = json.dumps({"name": engine.flow.name, "spec": engine.document})
    environment = {
        **os.environ,
        "BATCHMERGE_HOME": str(stack),
        "PYTHONPATH": str(ROOT),
        failpoints.VARIABLE: point,
    }
    killed = subprocess.run(
        [sys.executable, "-m", "tests.kit.retry"],
        env=environment,
        input=document,
        text=True,
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr


@pytest.mark.parametrize("point", failpoints.DEAD_LETTERS)
def test_killed_landing_sends_each_letter_once(
    point: str, stack: Path, connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    queue = topic("dlq")
    flow = Flow(topic(), ["upsert"], overrides={"dead_letters": {"topic": queue}})
    engine = Engine(flow, connections, spark)
    tell(engine, put(1, "a"), Record(0, 2, "{bad"), Record(0, 3, "{worse"))
    code, output = flow.run(stack, failpoint=point)
    assert code == -signal.SIGKILL, output
    engine.advance()
    assert [message.value() for message in read_all(connections, queue, 2)] == [b"{bad", b"{worse"]
