"""A REST catalog that accepts and never answers, and one whose tokens end."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from resources import iceberg_rest
from resources.connections import IcebergConnection
from resources.errors import ConfigurationError, Unavailable
from resources.iceberg import IcebergCatalog
from tests.kit.web import Handler, serving


def test_it_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_rest, "LIMIT", (5.0, 0.5))
    with socket.create_server(("127.0.0.1", 0), backlog=8) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        catalog = IcebergCatalog("lake", IcebergConnection(kind="iceberg", type="rest", uri=uri, warehouse="w"))
        with pytest.raises(Unavailable, match=r"does not answer \(ReadTimeout\)"):
            catalog.load("n.t")


class Renewing(Handler):
    """Takes the newest token alone, and ends it with each commit."""

    tokens = 0
    asked: ClassVar[list[str]] = []

    def _answer(self, status: int, given: object = None) -> None:
        body = json.dumps(given).encode() if given else b""
        self.answer(status, body, {"Content-Type": "application/json"})

    def do_GET(self) -> None:
        self._answer(200, {"defaults": {}, "overrides": {}, "endpoints": ["POST /v1/{prefix}/transactions/commit"]})

    def do_POST(self) -> None:
        self.body()
        if self.path.endswith("/oauth/tokens"):
            Renewing.tokens += 1
            self._answer(200, {"access_token": str(Renewing.tokens), "token_type": "bearer"})
            return
        is_newest = self.headers["Authorization"] == f"Bearer {Renewing.tokens}"
        Renewing.asked.append(f"{self.path} {is_newest}")
        if not is_newest:
            self._answer(401, {"error": {"message": "expired", "type": "NotAuthorizedException", "code": 401}})
            return
        Renewing.tokens += 1  # somebody else's
        self._answer(204)


def test_a_commit_of_several_tables_renews_a_token_that_has_expired() -> None:
    with serving(Renewing) as uri:
        catalog = IcebergCatalog(
            "lake",
            IcebergConnection.model_validate({"kind": "iceberg", "type": "rest", "uri": uri, "credential": "i:s"}),
        )
        catalog.commit_together([])
        catalog.commit_together([])
    path = "/v1/transactions/commit"
    assert Renewing.asked == [f"{path} True", f"{path} False", f"{path} True"]


def test_a_catalog_behind_an_authority_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)  # for `requests` they come before
    files = {name: str(tmp_path / name) for name in ("ca_file", "certificate_file", "key_file")}
    connection = {"kind": "iceberg", "type": "rest", **files}
    for name in ("certificate_file", "key_file"):
        (tmp_path / name).touch()
    with serving(Renewing) as uri:
        catalog: Any = IcebergCatalog("lake", IcebergConnection.model_validate({**connection, "uri": uri}))._catalog
    assert catalog._session.verify == files["ca_file"]
    assert catalog._session.cert == (files["certificate_file"], files["key_file"])
    missing = IcebergConnection.model_validate({**connection, "uri": "https://127.0.0.1:1"})
    with pytest.raises(ConfigurationError, match="a TLS file cannot be read"):
        IcebergCatalog("lake", missing).load("n.t")


@pytest.mark.parametrize("given", [{"type": "sql", "ca_file": "/ca"}, {"type": "rest", "key_file": "/key"}])
def test_tls_files_that_would_do_nothing(given: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        IcebergConnection.model_validate({"kind": "iceberg", **given})
