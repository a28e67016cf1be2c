"""A web server that passes requests on to another one, and its answers back: what stands between may change both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import ClassVar

from tests.kit.web import Handler

_HOP = ("content-length", "transfer-encoding", "connection", "server", "date")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes


class PassingOn(Handler):
    """
    Attributes:
        address: ``host:port`` of the other server. It gets the name that the client has signed.
    """

    protocol_version = "HTTP/1.1"
    address: ClassVar[str]

    def pass_on(self) -> None:
        """One request."""
        self.reply(self.ask(self.body()))

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return super().body()
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def ask(self, body: bytes) -> Answer:
        server = HTTPConnection(self.address, timeout=300)
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "expect", "transfer-encoding", "content-length"):
                server.putheader(name, value)
        if self.command in ("PUT", "POST", "PATCH") or body:
            server.putheader("Content-Length", str(len(body)))
        server.endheaders(body or None)
        answer = server.getresponse()
        content = answer.read()
        server.close()
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        return Answer(answer.status, {**kept, "Content-Length": length or str(len(content))}, content)

    def reply(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.content)

    def _request(self) -> None:
        self.pass_on()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _request
