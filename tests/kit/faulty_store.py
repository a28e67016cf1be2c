"""An object store that is busy, slow, or whose answers get lost; behind it the real one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from socket import SHUT_RDWR
from threading import Lock

from tests.kit.web import Handler, serving

_HOP = ("content-length", "transfer-encoding", "connection", "server", "date")


@dataclass
class Faults:
    """How it fails.

    Attributes:
        busy: the share of requests that are answered with 503 instead.
        lost: the share of requests that are done, and of which the answer does not arrive.
        delay: seconds before each request is done.
        seen: how often each of the first two happened.
    """

    busy: float = 0.0
    lost: float = 0.0
    delay: float = 0.0
    seen: dict[str, int] = field(default_factory=lambda: {"busy": 0, "lost": 0})
    _dice: random.Random = field(default_factory=lambda: random.Random(1))
    _lock: Lock = field(default_factory=Lock)

    def strike(self) -> str:
        """What happens to this request: ``busy``, ``lost``, or nothing of it."""
        with self._lock:
            number = self._dice.random()
            found = "busy" if number < self.busy else "lost" if number < self.busy + self.lost else ""
            if found:
                self.seen[found] += 1
            return found


@contextmanager
def faulty_store(endpoint: str) -> Iterator[tuple[Faults, str]]:
    """A store in front of the one at `endpoint`, and where it is."""
    faults, address = Faults(), endpoint.removeprefix("http://")

    class Gate(Handler):
        protocol_version = "HTTP/1.1"

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return super().body()
            found = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found

        def _pass_on(self) -> None:
            body, fault = self.body(), faults.strike()
            time.sleep(faults.delay)
            if fault == "busy":
                self.answer(503)
                return
            status, headers, content = _done(address, self.command, self.path, dict(self.headers.items()), body)
            if fault == "lost":
                self.close_connection = True
                self.connection.shutdown(SHUT_RDWR)
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on

    with serving(Gate) as own:
        yield faults, own


def _done(
    address: str, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and content of the real store's answer. It gets the name that the client has signed."""
    server = HTTPConnection(address, timeout=300)
    server.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        if name.lower() not in ("connection", "expect", "transfer-encoding", "content-length"):
            server.putheader(name, value)
    if method in ("PUT", "POST", "PATCH") or body:
        server.putheader("Content-Length", str(len(body)))
    server.endheaders(body or None)
    answer = server.getresponse()
    content = answer.read()
    server.close()
    kept = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
    length = answer.getheader("Content-Length") if method == "HEAD" else None
    return answer.status, {**kept, "Content-Length": length or str(len(content))}, content
