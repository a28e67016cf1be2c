from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from jobs.connections_file import load_connections
from resources.connections import Connections
from tests.kit.bigquery import drop_tables
from tests.kit.command import Command, command
from tests.kit.records import bootstrap
from tests.kit.secure_kafka import SecureKafka, secure_kafka


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """A broker with every way in, and an authorizer."""
    with secure_kafka(tmp_path_factory.mktemp("secure")) as running:
        yield running


@pytest.fixture
def admin(connections: Connections) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap(connections)})


@pytest.fixture(scope="module")
def bigquery_tables(bigquery: Path) -> Iterator[None]:
    """The BigQuery emulator, whose tables go when the module's tests are over."""
    yield
    drop_tables(load_connections(bigquery / "connections.yaml"))


@pytest.fixture
def batchmerge(
    tmp_path: Path, stack: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs the command: `batchmerge(engine, "offsets", "show", "")` -> exit code and what it printed."""
    return command(tmp_path, stack, monkeypatch, capsys)
