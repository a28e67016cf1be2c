"""How clients prove themselves to a Kafka cluster: settings of librdkafka, on this machine and on Spark's workers.

==============  =========================================================================
what            how
==============  =========================================================================
TLS             `ssl.ca.location`
mTLS            certificate and key by file; on workers as text (`carried_certificate`)
PLAIN, SCRAM    `sasl.username`, `sasl.password`
OAUTHBEARER     OIDC client credentials
AWS_MSK_IAM     OAUTHBEARER, with tokens that each machine signs (`resources.msk_tokens`)
==============  =========================================================================

Sources: librdkafka's CONFIGURATION.md; Apache Kafka's documentation, "Security" (OIDC: KIP-768).
All of it may hold secrets: never log it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from resources.connections import KafkaConnection, secret_text
from resources.errors import ConfigurationError


def carried_certificate(c: KafkaConnection) -> dict[str, str]:
    """The client's certificate and key as text, for Spark's workers, which need no file of ours; empty without one.

    Raises:
        ConfigurationError: they cannot be read.
    """
    if not (c.certificate_file and c.key_file):
        return {}
    key = _plain_key(c.key_file, secret_text(c.key_password))
    return {"ssl.certificate.pem": _content(c.certificate_file).decode(), "ssl.key.pem": key}


def librdkafka_settings(c: KafkaConnection, carried: Mapping[str, str] | None = None) -> dict[str, str]:
    """Security settings of a librdkafka client.

    Args:
        carried: stands in for files that are not on this machine (`carried_certificate`). Files come first, since
            librdkafka may read only the first certificate of a text.
    """
    user, password = c.username or "", secret_text(c.password)
    oauth = c.sasl_mechanism == "OAUTHBEARER"
    found = {
        "security.protocol": c.security_protocol,
        "sasl.mechanism": "OAUTHBEARER" if c.sasl_mechanism == "AWS_MSK_IAM" else c.sasl_mechanism,
        "sasl.username": None if oauth else c.username,
        "sasl.password": None if oauth else password or None,
        "sasl.oauthbearer.method": "oidc" if oauth else None,
        "sasl.oauthbearer.token.endpoint.url": c.token_url,
        "sasl.oauthbearer.client.id": user if oauth else None,
        "sasl.oauthbearer.client.secret": password if oauth else None,
        "sasl.oauthbearer.scope": c.token_scope,
        "ssl.ca.location": c.ca_file,
        "ssl.certificate.location": c.certificate_file,
        "ssl.key.location": c.key_file,
        "ssl.key.password": secret_text(c.key_password) or None,
    }
    if carried and not (c.certificate_file and Path(c.certificate_file).exists()):
        found |= {"ssl.certificate.location": None, "ssl.key.location": None, "ssl.key.password": None, **carried}
    return {name: value for name, value in found.items() if value is not None}


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as problem:
        raise ConfigurationError(
            f"cannot be read: {problem.strerror}",
            where=file,
            remedy="correct the path or its permissions in the connections file",
        ) from None


def _plain_key(file: str, password: str) -> str:
    """The key as PKCS #8 without a password: Kafka's Java client reads neither PKCS #1 nor encryption by PBES2."""
    # Imported late: commands that need no key would wait for it.
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key(_content(file), password.encode() or None)
    except (ValueError, TypeError):
        raise ConfigurationError(
            "not a private key in PEM, or not this key's password",
            where=file,
            remedy="correct `key_file` or `key_password` in the connections file",
        ) from None
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
