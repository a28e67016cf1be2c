"""Networks that fail: a wire that can be cut, and a BigQuery whose quota is used up; behind them the real servers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection

from resources.connections import Connection, Connections
from tests.kit.web import Handler, serving


def with_connection(connections: Connections, name: str, other: Connection) -> Connections:
    """These connections with one of them replaced."""
    return Connections({n: connections.get(n, Connection) for n in connections.names()} | {name: other}, "test")


@dataclass
class Wire:
    """Carries bytes to `address` and back until it is cut.

    Attributes:
        carried: bytes towards the server since the wire was made.
        cut_after: the wire cuts itself when so many bytes were carried.
    """

    address: tuple[str, int]
    cut_after: int | None = None
    carried: int = 0
    is_cut: bool = False
    _ends: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def cut(self) -> None:
        """Ends all connections at once, and accepts none until `restore`."""
        with self._lock:
            self.is_cut = True
            for end in self._ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
            self._ends.clear()

    def restore(self) -> None:
        self.cut_after, self.is_cut = None, False

    def serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self.is_cut:
                client.close()
                continue
            server = socket.create_connection(self.address)
            with self._lock:
                self._ends += [client, server]
            threading.Thread(target=self._carry, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._carry, args=(server, client, False), daemon=True).start()

    def _carry(self, origin: socket.socket, to: socket.socket, counts: bool) -> None:
        with suppress(OSError):
            while data := origin.recv(65536):
                self.carried += len(data) if counts else 0
                if counts and self.cut_after is not None and self.carried >= self.cut_after:
                    self.cut()
                    return
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)


@contextmanager
def wire_to(address: str) -> Iterator[tuple[Wire, str]]:
    """A wire to ``host:port``, and the address where it is reached."""
    host, port = address.rsplit(":", 1)
    wire = Wire((host, int(port)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=wire.serve, args=(listener,), daemon=True).start()
        try:
            yield wire, f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            wire.cut()
            listener.shutdown(socket.SHUT_RDWR)


@dataclass
class Quota:
    """Attributes:
    used_up: new jobs are refused, as BigQuery refuses them.
    refused: how many were.
    """

    used_up: bool = False
    refused: int = 0


@contextmanager
def with_quota(endpoint: str) -> Iterator[tuple[Quota, str]]:
    """A BigQuery endpoint in front of `endpoint`, with a quota of jobs that can be used up."""
    quota = Quota()
    address = endpoint.removeprefix("http://")

    class Gate(Handler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.body()
            if quota.used_up and self.command == "POST" and "/jobs" in self.path:
                quota.refused += 1
                self.answer(403, _QUOTA_EXCEEDED, {"Content-Type": "application/json"})
                return
            server = HTTPConnection(address, timeout=300)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "accept-encoding")}
            server.request(self.command, self.path, body, headers)
            answer = server.getresponse()
            kept = {k: v.replace(endpoint, own) for k, v in answer.getheaders() if k.lower() not in _HOP}
            self.answer(answer.status, answer.read(), kept)
            server.close()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on

    with serving(Gate) as own:
        yield quota, own


_HOP = ("content-length", "transfer-encoding", "connection", "content-encoding", "server", "date")
# https://cloud.google.com/bigquery/docs/error-messages: quotaExceeded is 403.
_REASON = {"reason": "quotaExceeded", "message": "Quota exceeded: Your table exceeded quota for imports per table"}
_QUOTA_EXCEEDED = json.dumps({"error": {"code": 403, "message": _REASON["message"], "errors": [_REASON]}}).encode()
