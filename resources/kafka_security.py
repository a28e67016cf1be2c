"""How clients prove themselves to a Kafka cluster: the same connection for librdkafka and for Spark's Java client.

=================  ==================================================  ===============================================
what               librdkafka (plans, offsets, control topic)          Java (Spark's Kafka source)
=================  ==================================================  ===============================================
TLS                `ssl.ca.location`                                   PEM trust store by file
mTLS               certificate and key by file                         PEM key store: certificate and key as text
PLAIN, SCRAM       `sasl.username`, `sasl.password`                    `sasl.jaas.config`
OAUTHBEARER        OIDC client credentials                             `sasl.jaas.config`, login callback handler
=================  ==================================================  ===============================================

Sources: librdkafka's CONFIGURATION.md; Apache Kafka's documentation, "Security" (PEM stores: KIP-651; OIDC: KIP-768).
All of it may hold secrets: never log it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from pydantic import SecretStr

from resources.connections import KafkaConnection
from resources.errors import ConfigurationError

_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_OAUTH_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def carried_certificate(c: KafkaConnection) -> dict[str, str]:
    """The client's certificate and key as text, for Spark's workers, which need no file of ours; empty without one.

    Raises:
        ConfigurationError: they cannot be read.
    """
    if not (c.certificate_file and c.key_file):
        return {}
    key = _plain_key(c.key_file, _text(c.key_password))
    return {"ssl.certificate.pem": _content(c.certificate_file).decode(), "ssl.key.pem": key}


def librdkafka_settings(c: KafkaConnection, carried: Mapping[str, str] | None = None) -> dict[str, str]:
    """Security settings of a librdkafka client.

    Args:
        carried: stands in for files that are not on this machine (`carried_certificate`). librdkafka may take of a
            text the first certificate only, so the files come first.
    """
    user, password = c.username or "", _text(c.password)
    oauth = c.sasl_mechanism == "OAUTHBEARER"
    found = {
        "security.protocol": c.security_protocol,
        "sasl.mechanism": c.sasl_mechanism,
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
        "ssl.key.password": _text(c.key_password) or None,
    }
    if carried and not (c.certificate_file and Path(c.certificate_file).exists()):
        found |= {"ssl.certificate.location": None, "ssl.key.location": None, "ssl.key.password": None, **carried}
    return {name: value for name, value in found.items() if value is not None}


def spark_options(c: KafkaConnection) -> dict[str, str]:
    """Security options of Spark's Kafka source.

    Raises:
        ConfigurationError: the client certificate or its key cannot be read.
    """
    options: dict[str, str] = {"kafka.security.protocol": c.security_protocol}
    if c.sasl_mechanism:
        options["kafka.sasl.mechanism"] = c.sasl_mechanism
        options["kafka.sasl.jaas.config"] = jaas(c)
    if c.sasl_mechanism == "OAUTHBEARER":
        options["kafka.sasl.oauthbearer.token.endpoint.url"] = c.token_url or ""
        options["kafka.sasl.login.callback.handler.class"] = _OAUTH_LOGIN
    if c.ca_file:
        options |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": c.ca_file}
    if c.certificate_file and c.key_file:
        # As text, since Java wants both in one file; so the workers need no file of ours.
        options |= {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": _content(c.certificate_file).decode(),
            "kafka.ssl.keystore.key": _plain_key(c.key_file, _text(c.key_password)),
        }
    return options


def jaas(c: KafkaConnection) -> str:
    """The login module with its options, as the Java client wants it."""
    mechanism = c.sasl_mechanism or "PLAIN"
    user, password = c.username or "", _text(c.password)
    given = {"username": user, "password": password}
    if mechanism == "OAUTHBEARER":
        given = {"clientId": user, "clientSecret": password}
        if c.token_scope:
            given["scope"] = c.token_scope
    quoted = " ".join(f'{name}="{_escape(value)}"' for name, value in given.items())
    return f"{_MODULES[mechanism]} required {quoted};"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _text(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret else ""


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as problem:
        raise ConfigurationError(
            f"cannot be read: {problem.strerror}",
            where=file,
            remedy="mend the path or its permissions in the connections file",
        ) from None


def _plain_key(file: str, password: str) -> str:
    """The key as PKCS #8 without a password: Kafka's Java client reads neither PKCS #1 nor encryption by PBES2."""
    try:
        key = serialization.load_pem_private_key(_content(file), password.encode() or None)
    except (ValueError, TypeError):
        raise ConfigurationError(
            "not a private key in PEM, or not this key's password",
            where=file,
            remedy="mend `key_file` or `key_password` in the connections file",
        ) from None
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
