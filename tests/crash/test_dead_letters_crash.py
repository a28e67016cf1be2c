"""kill -9 while dead letters are tried again or sent to their topic: each is in the tables once, and sent once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.dead_letters.listing import summary
from jobs.dead_letters.retry import retry
from resources.connections import Connections
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.letters import LARGE, WHERE, narrowed
from tests.kit.records import put

pytestmark = pytest.mark.crash


def test_letters_of_a_batch_that_was_never_committed_wait_for_it(
    stack: Path, connections: Connections, spark: SparkSession, topic: Callable[..., str]
) -> None:
    """Direct landing publishes them first; the batch may be cut otherwise when it is landed after all."""
    flow = Flow(topic(), ["append"], overrides={"intermediate": {"direct": True}}, table_options=WHERE)
    before, after = narrowed(Engine(flow, connections, spark))
    before.tell(put(1, "first"), put(2, "large", amount=LARGE), put(3, "large", amount=LARGE))
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
