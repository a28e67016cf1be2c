"""An OIDC provider for a test: tokens for client credentials at `/token`, the key to check them in a file (JWKS)."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

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

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            known = self.headers.get("Authorization") == wanted
            answer = {"access_token": _token(key, client), "token_type": "Bearer", "expires_in": 3600}
            body = json.dumps(answer if known else {"error": "invalid_client"}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Provider(f"http://127.0.0.1:{server.server_port}/token", keys)
    finally:
        server.shutdown()
        server.server_close()


def _token(key: rsa.RSAPrivateKey, subject: str) -> str:
    now = int(time.time())
    claims = {"sub": subject, "aud": AUDIENCE, "iat": now - 5, "exp": now + 3600, "scope": "records"}
    head = {"alg": "RS256", "typ": "JWT", "kid": "test"}
    text = ".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
    return f"{text}.{_base64(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
