"""The settings of librdkafka that a connection may name under `settings`: those that have no option of its own."""

from __future__ import annotations

# Groups of settings that may be named, and those of them for which there are options.
_FREE = ("client.", "socket.", "broker.", "ssl.", "sasl.oauthbearer.")
_OPTIONS = {
    "socket.timeout.ms": "timeout_seconds",
    "ssl.ca.location": "ca_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.key.location": "key_file",
    "ssl.key.password": "key_password",
    "sasl.oauthbearer.client.id": "username",
    "sasl.oauthbearer.client.secret": "password",
    "sasl.oauthbearer.token.endpoint.url": "token_url",
    "sasl.oauthbearer.scope": "token_scope",
}
# How librdkafka gets the machine's own identity.
IDENTITY = "sasl.oauthbearer.metadata.authentication.type"


def option_of(name: str) -> str:
    """The option that stands for one of librdkafka's settings, else the setting itself."""
    return _OPTIONS.get(name, name)


def is_free(name: str) -> bool:
    return name.startswith(_FREE) and name not in _OPTIONS


def why_not_free(name: str) -> tuple[str, str]:
    """What is wrong with a setting that is not free, and the remedy."""
    if option := _OPTIONS.get(name):
        return f"there is the option `{option}` for it", f"use `{option}`"
    return "Batchmerge sets it, or does not know what it does", f"leave it out; free are {', '.join(_FREE)}…"
