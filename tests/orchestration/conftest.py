from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tests.kit.empty_instance import make_empty_instance
from tests.kit.waiting import PATIENCE
from tests.kit.web import Handler, serving


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no silent system. Tests of silent ones set limits of their own."""
    for limit in (
        "jobs.circuit_breaker._LIMIT",
        "orchestration.cli.run._PATIENCE",
        "orchestration.sensors.lag._PATIENCE",
        "orchestration.sensors.lag._PATIENCE_FOR_MEMBERS",
        "orchestration.sensors.lease_state._PATIENCE",
    ):
        monkeypatch.setattr(limit, PATIENCE)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """A real instance in a folder of its own."""
    make_empty_instance(tmp_path / "instance")
    with dg.instance_for_test(temp_dir=str(tmp_path / "instance")) as made:
        yield made


@pytest.fixture
def silent_server() -> Iterator[str]:
    """host:port of a server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def lineage(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The events that a receiver of OpenLineage gets, as long as the test runs."""
    with lineage_receiver() as (address, received):
        monkeypatch.setenv("OPENLINEAGE_URL", address)
        yield received


@contextmanager
def lineage_receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and the events that it gets."""
    received: list[dict[str, Any]] = []

    class Receiver(Handler):
        def do_POST(self) -> None:
            received.append(json.loads(self.body()))
            self.answer(201)

    with serving(Receiver) as address:
        yield address, received
