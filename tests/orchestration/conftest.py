from __future__ import annotations

import socket
from collections.abc import Iterator

import dagster as dg
import pytest


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A real instance in a folder of its own."""
    with dg.instance_for_test() as made:
        yield made


@pytest.fixture
def silent_server() -> Iterator[str]:
    """host:port of a server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"
