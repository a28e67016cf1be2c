"""A REST catalog that accepts and never answers."""

from __future__ import annotations

import socket

import pytest

from resources import iceberg_rest
from resources.connections import IcebergConnection
from resources.errors import Unavailable
from resources.iceberg import IcebergCatalog


def test_it_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_rest, "LIMIT", (5.0, 0.5))
    with socket.create_server(("127.0.0.1", 0), backlog=8) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        catalog = IcebergCatalog("lake", IcebergConnection(kind="iceberg", type="rest", uri=uri, warehouse="w"))
        with pytest.raises(Unavailable, match=r"does not answer \(ReadTimeout\)"):
            catalog.load("n.t")
