"""kill -9 of the worker that sends dead letters to their topic: each is sent once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial

import pytest
from pyspark.sql import SparkSession

from resources.connections import Connections
from tests.kit.dead_letters import read_all
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.records import Record

pytestmark = pytest.mark.crash


def test_a_worker_that_dies_while_it_sends_dead_letters(
    connections: Connections,
    spark: SparkSession,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has written them all. The run goes on with a warning, and the next one sends them."""
    queue = topic("dlq")
    engine = Engine(Flow(topic(), ["upsert"], overrides={"dead_letters": {"topic": queue}}), connections, spark)
    engine.produce(*(Record(0, key, f"{{bad {key}") for key in range(5)))
    dies = partial(signal.raise_signal, signal.SIGKILL)
    with monkeypatch.context() as patch:
        patch.setattr("jobs.dead_letters.topic.failpoint_of_task", lambda _name: dies)
        engine.advance()
    assert "the next run sends them" in caplog.text
    engine.advance()
    sent = read_all(connections, queue, 5)
    assert [message.value() for message in sent] == [f"{{bad {key}".encode() for key in range(5)]
