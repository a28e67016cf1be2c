"""The behaviour suite: every kind of destination × every mode that it has, each behaviour one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.connections_file import load_connections
from resources.connections import Connections
from resources.local import stack as local_stack
from tests.kit.command import Command, command
from tests.kit.engine import session
from tests.kit.kind import KindUnderTest
from tests.kit.kinds import KINDS, runnable, unavailable, with_others
from tests.kit.story import SLOWEST, Story, Target

MakeStory = Callable[..., Story]

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
# `make test` leaves out the kind that takes longest.
most_kinds = pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[pytest.mark.slow] if name == SLOWEST else []) for name, k in KINDS.items()],
    ids=list(KINDS),
)


@pytest.fixture(scope="session")
def services(stack: Path) -> Connections:
    """Connections to the services of every kind that can run here."""
    wanted = [kind.service for kind in KINDS.values() if kind.service and runnable(kind)]
    local_stack.up(stack, wanted, print)
    return load_connections(with_others(stack))


@pytest.fixture(autouse=True)
def _kind_can_run(request: pytest.FixtureRequest) -> None:
    """Skips what is of a kind whose service cannot run on this machine, and says why."""
    given = getattr(request.node, "callspec", None)
    for value in given.params.values() if given else ():
        kind = value.kind if isinstance(value, Target) else value
        if isinstance(kind, KindUnderTest) and (reason := unavailable(kind)):
            pytest.skip(reason)


@pytest.fixture(scope="session")
def spark(services: Connections) -> Iterator[SparkSession]:
    with session(services) as opened:
        yield opened


@pytest.fixture
def batchmerge(
    tmp_path: Path,
    stack: Path,
    services: Connections,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """Runs the command: `batchmerge(engine, "offsets", "show", "")` -> exit code and what it printed."""
    del services
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(with_others(stack)))
    return command(tmp_path, stack, monkeypatch, capsys)


@pytest.fixture(scope="module")
def new_story(module_topic: Callable[..., str], services: Connections, spark: SparkSession) -> Iterator[MakeStory]:
    """Makes stories: `new_story(partitions=2)`, `new_story(changes=…)` with parts of the pipeline file."""

    def make(partitions: int = 1, **parts: Any) -> Story:
        return Story.of(module_topic(partitions=partitions), services, spark, **parts)

    yield make
    for kind in KINDS.values():
        if runnable(kind):
            kind.tidy(services)
