"""What each kind of security becomes for librdkafka, also on Spark's workers, and what does not go together."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import ValidationError

from resources.connections import KafkaConnection
from resources.errors import ConfigurationError, Unavailable
from resources.kafka import KafkaCluster
from resources.kafka_errors import kafka_errors
from resources.kafka_security import carried_certificate, librdkafka_settings
from resources.range_reading import read_ranges
from resources.topic_partition import TopicPartition
from tests.kit.certificates import Authority
from tests.kit.web import Handler, serving


def connection(**given: object) -> KafkaConnection:
    return KafkaConnection.model_validate({"kind": "kafka", "bootstrap_servers": "b:9092", **given})


LOGIN = {"username": "me", "password": "pw"}
MSK = {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM", "aws_region": "eu-west-1"}
_IDENTITY = "sasl.oauthbearer.metadata.authentication.type"
_AZURE = {_IDENTITY: "azure_imds", "sasl.oauthbearer.config": "query=a"}
_OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}


def test_no_security() -> None:
    assert librdkafka_settings(connection()) == {"security.protocol": "PLAINTEXT"}


def test_oauthbearer() -> None:
    c = connection(
        **LOGIN,
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        token_url="https://id/token",
        token_scope="records",
    )
    assert librdkafka_settings(c) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://id/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "pw",
        "sasl.oauthbearer.scope": "records",
    }


def test_msk_iam() -> None:
    assert librdkafka_settings(connection(**MSK)) == {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


def test_client_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.issue("client", "key-password")
    files = {"certificate_file": str(client.certificate), "key_file": str(client.key), "ca_file": str(authority.file)}
    c = connection(security_protocol="SSL", key_password="key-password", **files)
    assert librdkafka_settings(c)["ssl.key.location"] == str(client.key)
    travels = pickle.dumps(KafkaCluster("kafka", c))
    chain = client.certificate.read_text()
    for wrong in ({"key_password": "other"}, {"key_file": str(client.certificate)}, {"key_file": str(tmp_path / "no")}):
        with pytest.raises(ConfigurationError) as caught:
            carried_certificate(
                connection(**{"security_protocol": "SSL", "key_password": "key-password", **files, **wrong})
            )
        assert "key-password" not in str(caught.value)
    there = pickle.loads(travels)
    assert there.client_settings()["ssl.key.location"] == str(client.key)
    client.certificate.unlink()
    settings = there.client_settings()
    assert settings["ssl.certificate.pem"] == chain
    assert load_pem_private_key(settings["ssl.key.pem"].encode(), None) is not None
    assert not {"ssl.certificate.location", "ssl.key.location", "ssl.key.password"} & settings.keys()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism"),
        ({"sasl_mechanism": "PLAIN", **LOGIN}, "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "username": "me"}, "`password`"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", **LOGIN}, "token_url"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "token_url": "u", **LOGIN}, "token_url"),
        ({"security_protocol": "SSL", "certificate_file": "c"}, "key_file"),
        ({"ca_file": "c"}, "SSL"),
        ({"settings": {"group.id": "g"}}, r"group\.id.*Batchmerge sets it"),
        ({"settings": {"ssl.ca.location": "c"}}, "use `ca_file`"),
        ({"settings": {"sasl.kerberos.service.name": "k"}}, r"sasl\.kerberos.*leave it out"),
        (
            {**_OAUTH, "settings": {_IDENTITY: "aws_iam", "sasl.oauthbearer.config": "region=r"}},
            "azure_imds",
        ),
        ({**_OAUTH, **LOGIN, "token_url": "u", "settings": {_IDENTITY: "aws_iam"}}, "azure_imds"),
        ({**_OAUTH, "settings": {_IDENTITY: "none"}}, "token_url"),
        ({**MSK, "aws_region": None}, "aws_region: AWS_MSK_IAM needs it"),
        ({**MSK, "username": "me"}, "username: AWS_MSK_IAM does not use it"),
        ({**MSK, "password": "pw"}, "password: AWS_MSK_IAM does not use it"),
        ({**MSK, "token_url": "u"}, "token_url: it goes with OAUTHBEARER only"),
        ({**MSK, "settings": {"sasl.oauthbearer.config": "c"}}, r"config\"\]: AWS_MSK_IAM does not use it"),
        ({**MSK, "security_protocol": "SASL_PLAINTEXT"}, "use SASL_SSL"),
        ({**MSK, "security_protocol": "SSL"}, "sasl_mechanism"),
        ({**MSK, "aws_role_arn": "r", "aws_profile": "p"}, "give one of them"),
        *(
            ({name: "a"}, f"{name}: it goes with AWS_MSK_IAM only")
            for name in ("aws_region", "aws_role_arn", "aws_profile")
        ),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        connection(**given)


def test_further_settings_reach_the_client_and_are_shown_nowhere() -> None:
    settings = {"client.rack": "a", "sasl.oauthbearer.extensions": "hidden", **_AZURE}
    c = connection(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", settings=settings)
    client = pickle.loads(pickle.dumps(KafkaCluster("kafka", c))).client_settings()
    assert settings.items() <= client.items()
    assert "hidden" not in f"{c!r}{c}{c.model_dump_json()}"


@pytest.mark.parametrize("name", ["ssl.nonsense", "client.dns.lookup", "socket.keepalive.enable"])
def test_a_setting_that_the_client_refuses_is_named_without_its_value(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"setting {re.escape(name)},.*`settings`") as caught:
        KafkaCluster("kafka", connection(settings={name: "hidden"})).topic_names()
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"settings": {"ssl.key.pem": "hidden"}}, r"\(ssl\.key\.pem\)"),
        ({"settings": {"ssl.ca.pem": "hidden"}}, r"\(ssl\.ca\.pem\)"),
        ({"settings": {"ssl.keystore.location": "/hidden"}}, r"\(ssl\.keystore\.password, ssl\.keystore\.location\)"),
        ({"settings": {"ssl.providers": "hidden"}}, "the connection's settings. "),
        ({"ca_file": "/hidden.pem"}, r"\(ca_file\)"),
        ({**_OAUTH, "settings": {_IDENTITY: "azure_imds"}}, r"\(token_url\)"),
    ],
)
def test_settings_that_the_client_refuses_together_are_no_outage(given: dict[str, object], names: str) -> None:
    with pytest.raises(ConfigurationError, match=f"does not take .*{names}") as caught:
        KafkaCluster("kafka", connection(**{"security_protocol": "SSL", **given})).topic_names()
    assert "hidden" not in str(caught.value)


class Refusing(Handler):
    def do_POST(self) -> None:
        answer = json.dumps({"error": "invalid_client", "error_description": f"you sent {self.body().decode()} sekret"})
        self.answer(401, answer.encode(), {"Content-Type": "application/json"})


def oauth(token_url: str) -> KafkaCluster:
    given = {**_OAUTH, "security_protocol": "SASL_PLAINTEXT", "token_url": token_url, "timeout_seconds": 1}
    return KafkaCluster("k", connection(**given, username="id", password="sekret"))


def read(cluster: KafkaCluster) -> object:
    return list(read_ranges(cluster, {TopicPartition("t", 0): (0, 1)}))


@pytest.mark.parametrize("ask", [KafkaCluster.topic_names, read])
def test_an_identity_provider_that_is_away_is_tried_again(ask: Callable[[KafkaCluster], object]) -> None:
    with pytest.raises(Unavailable, match="the identity provider does not answer") as caught:
        ask(oauth("http://127.0.0.1:1/token"))
    assert "`token_url`" in caught.value.remedy


@pytest.mark.parametrize("ask", [KafkaCluster.topic_names, read])
def test_an_identity_provider_that_refuses_is_not_repeated(
    ask: Callable[[KafkaCluster], object], caplog: pytest.LogCaptureFixture
) -> None:
    with serving(Refusing) as address, pytest.raises(ConfigurationError, match="Kafka refuses access") as caught:
        ask(oauth(f"{address}/token"))
    options = ("`username`", "`password`", "`token_url`", "`token_scope`")
    assert [name for name in options if name not in caught.value.remedy] == []
    assert f'token from "{address}/token": (401)' in caplog.text
    assert "sekret" not in str(caught.value) + caplog.text


def test_a_broker_that_does_not_answer_may_want_another_protocol() -> None:
    """A plain client at a port with TLS gets no answer either."""
    with pytest.raises(Unavailable, match="`bootstrap_servers` and `security_protocol`"), kafka_errors("kafka"):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
