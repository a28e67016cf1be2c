"""TLS in front of a server that speaks plain TCP: what a load balancer does for ClickHouse in production."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.kit.certificates import Certificate


@contextmanager
def tls_proxy(target: str, certificate: Certificate) -> Iterator[str]:
    """host:port that takes TLS and passes what it gets to `target`, until the block ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    host, port = target.rsplit(":", 1)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=_handle, args=(client, context, host, int(port)), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def _handle(client: socket.socket, context: ssl.SSLContext, host: str, port: int) -> None:
    with (
        suppress(OSError),
        context.wrap_socket(client, server_side=True) as secured,
        socket.create_connection((host, port)) as server,
    ):
        # One thread for each direction: a TLS socket may be read and written at once.
        back = threading.Thread(target=_copy, args=(server, secured), daemon=True)
        back.start()
        _copy(secured, server)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
