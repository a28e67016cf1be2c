"""ClickHouse over TLS: the authority's certificate, here and on Spark's workers; and the settings of statements."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import clickhouse_connect
import pytest
from clickhouse_connect.driver.binding import format_bind_value
from clickhouse_connect.driver.exceptions import OperationalError
from urllib3.exceptions import HTTPError

from resources.clickhouse import _SETTINGS, ClickHouseServer, _bound
from resources.connections import ClickHouseConnection
from resources.errors import ConfigurationError
from tests.kit.certificates import Authority
from tests.kit.tls_proxy import tls_proxy


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


@pytest.fixture
def plain() -> Iterator[str]:
    """A server that answers over HTTP."""
    with HTTPServer(("127.0.0.1", 0), _Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends the statement `path` to no ClickHouse."""

    def get_client(host: str, port: int, pool_mgr: Any, **_: object) -> Any:
        def ask(path: str, **_: object) -> Any:
            try:
                answer = pool_mgr.request("GET", f"https://{host}:{port}{path}", retries=False)
            except HTTPError as problem:
                raise OperationalError(str(problem)) from problem
            return SimpleNamespace(named_results=lambda: [{"status": answer.status}])

        return SimpleNamespace(query=ask)

    monkeypatch.setattr(clickhouse_connect, "get_client", get_client)


def reached(endpoint: str, file: Path) -> ClickHouseServer:
    known = ClickHouseConnection(kind="clickhouse", endpoints=[endpoint], secure=True, ca_file=str(file))
    return ClickHouseServer("ch", known, endpoint)


def test_workers_need_no_file_of_the_authority(plain: str, tmp_path: Path) -> None:
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    with tls_proxy(plain, ours.issue("server")) as endpoint:
        here, stranger = reached(endpoint, ours.file), reached(endpoint, theirs.file)
        assert here.rows("/") == [{"status": 200}]
        sent = pickle.dumps([here, here.with_time(900), stranger])
        ours.file.unlink()
        theirs.file.unlink()
        there, patient, strange = pickle.loads(sent)
        for one in (there, patient, pickle.loads(pickle.dumps(there))):
            assert one.rows("/") == [{"status": 200}]
        assert patient.connection.statement_timeout_seconds == 900
        with pytest.raises(ConfigurationError, match=r"is not trusted. Fix: name its authority in `ca_file`"):
            strange.rows("/")


def test_authority_that_cannot_be_read_is_reported_as_that(plain: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"ca\.pem: cannot be read: No such file .*Fix: correct `ca_file`"):
        reached(plain, tmp_path / "ca.pem").rows("/")


@pytest.mark.parametrize("text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"])
def test_authority_without_a_certificate_is_reported_as_that(text: str, plain: str, tmp_path: Path) -> None:
    """Of an empty one the machine's authorities would be trusted without a word."""
    (tmp_path / "ca.pem").write_text(text)
    with pytest.raises(ConfigurationError, match=r"ca\.pem: holds no certificate in PEM format. Fix: .*`ca_file`"):
        reached(plain, tmp_path / "ca.pem").rows("/")


def test_every_limit_of_a_profile_fails_a_statement() -> None:
    """`group_by_overflow_mode: any`, for one, lets `verify` see fewer keys."""
    pytest.importorskip("chdb")
    query = "SELECT name FROM system.settings WHERE name LIKE '%_overflow_mode'"
    program = [sys.executable, "-c", f"import chdb; print(chdb.query({query!r}))"]
    found = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    modes = {name: value for name, value in _SETTINGS.items() if name.endswith("_overflow_mode")}
    assert modes == dict.fromkeys(found.replace('"', "").split(), "throw")


@pytest.mark.parametrize(
    "value",
    [
        ["a", "b'c", "d\\e", "f`g", "h\ti", "j\nk", "\\'", "ü \r\0", ""],
        [],
        ["a", 1],
        [["a"], ["b'"]],
        [1, 2],
        "a'b",
        None,
    ],
    ids=str,
)
def test_parameters_are_written_as_the_client_writes_them(value: object) -> None:
    assert format_bind_value(_bound({"x": value})["x"]) == format_bind_value(value)
