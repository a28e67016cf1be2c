"""TLS in front of a server that speaks plain TCP: what a load balancer or a proxy with passwords does in production."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.kit.certificates import Certificate


@contextmanager
def tls_proxy(
    target: str, certificate: Certificate, clients: Path | None = None, authorization: str | None = None
) -> Iterator[str]:
    """host:port that takes TLS and passes what it gets to `target`, until the block ends.

    Args:
        clients: the authority whose certificates clients must show; None: they need none.
        authorization: what HTTP requests must have in that header; others are answered with 401.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    if clients:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    host, port = target.rsplit(":", 1)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    given = (client, context, (host, int(port)), authorization)
                    threading.Thread(target=_handle, args=given, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def _handle(client: socket.socket, context: ssl.SSLContext, target: tuple[str, int], authorization: str | None) -> None:
    with (
        suppress(OSError),
        context.wrap_socket(client, server_side=True) as secured,
        socket.create_connection(target) as server,
    ):
        if authorization:
            head = _head(secured)
            if f"\r\nauthorization: {authorization}\r\n".lower().encode() not in head.lower():
                secured.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            server.sendall(head)
        # One thread for each direction: a TLS socket may be read and written at once.
        back = threading.Thread(target=_copy, args=(server, secured), daemon=True)
        back.start()
        _copy(secured, server)
        back.join()


def _head(source: socket.socket) -> bytes:
    """The first request of a connection, up to its body: its credentials are those of the connection."""
    found = b""
    while b"\r\n\r\n" not in found and (data := source.recv(65536)):
        found += data
    return found


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
