"""A service account's key, as BigQuery's connections hold it, and the server that gives tokens for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.kit.web import Handler, serving


def account(server: str, key_id: str) -> dict[str, str]:
    """The content of the key file; `server` gives its tokens."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return {
        "type": "service_account", "project_id": "p", "private_key": pem, "private_key_id": key_id,
        "client_email": "me@p.iam", "token_uri": f"{server}/token",
    }  # fmt: skip


@contextmanager
def token_server(token: str, asked: list[str]) -> Iterator[str]:
    """Gives this token to whoever asks, and notes each request; gives its address."""

    class Answers(Handler):
        def do_POST(self) -> None:
            asked.append(self.body().decode())
            body = json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 3600}).encode()
            self.answer(200, body, {"Content-Type": "application/json"})

    with serving(Answers) as address:
        yield address
