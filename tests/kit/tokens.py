"""An OIDC provider for a test: tokens for client credentials at `/token`, the key to check them in a file (JWKS)."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.kit.web import Handler, serving

AUDIENCE = "kafka"


@dataclass(frozen=True)
class Provider:
    """Where tokens come from, and the file that checks them."""

    url: str
    keys: Path


@contextmanager
def provider(folder: Path, client: str, secret: str) -> Iterator[Provider]:
    """Serves until the block ends; gives tokens to this client only."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    numbers = key.public_key().public_numbers()
    public = {
        "kty": "RSA",
        "kid": "test",
        "alg": "RS256",
        "use": "sig",
        "n": _base64(numbers.n.to_bytes(256, "big")),
        "e": _base64(numbers.e.to_bytes(3, "big")),
    }
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [public]}))
    wanted = "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()

    class Answers(Handler):
        def do_POST(self) -> None:
            self.body()
            known = self.headers.get("Authorization") == wanted
            answer = {"access_token": _token(key, client), "token_type": "Bearer", "expires_in": 3600}
            body = json.dumps(answer if known else {"error": "invalid_client"}).encode()
            self.answer(200 if known else 401, body, {"Content-Type": "application/json"})

    with serving(Answers) as address:
        yield Provider(f"{address}/token", keys)


def _token(key: rsa.RSAPrivateKey, subject: str) -> str:
    now = int(time.time())
    claims = {"sub": subject, "aud": AUDIENCE, "iat": now - 5, "exp": now + 3600, "scope": "records"}
    head = {"alg": "RS256", "typ": "JWT", "kid": "test"}
    text = ".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
    return f"{text}.{_base64(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
