"""Tokens for Amazon MSK: what AWS's library signs, when it is asked again, and what is reported where it gives none."""

from __future__ import annotations

import base64
import logging
import pickle
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import (
    ClientError,
    CredentialRetrievalError,
    MetadataRetrievalError,
    NoCredentialsError,
    ReadTimeoutError,
)
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from resources import msk_tokens
from resources.connections import KafkaConnection
from resources.errors import BatchmergeError, ConfigurationError, Unavailable
from resources.kafka import KafkaCluster
from resources.msk_tokens import MskTokens

KEY, SECRET = "AKIAEXAMPLE", "secret-of-aws-5512"
ROLE = "arn:aws:iam::123456789012:role/reader"
LIBRARY = "aws_msk_iam_sasl_signer"
Signer = Callable[..., tuple[str, int]]


def connection(**given: object) -> KafkaConnection:
    msk = {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM", "aws_region": "eu-west-1"}
    return KafkaConnection.model_validate({"kind": "kafka", "bootstrap_servers": "127.0.0.1:1", **msk, **given})


def tokens(**given: object) -> MskTokens:
    return MskTokens("connection kafka", connection(**given))


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No keys, no profile, no machine of Amazon's to ask, and no token of an earlier test."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": None,
        "AWS_SECRET_ACCESS_KEY": None,
        "AWS_SESSION_TOKEN": None,
        "AWS_PROFILE": None,
        "AWS_WEB_IDENTITY_TOKEN_FILE": None,
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": None,
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": None,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:1",
        "AWS_REGION": "eu-west-1",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(msk_tokens, "_CURRENT", {})
    monkeypatch.setattr(msk_tokens, "_PAUSE", 0)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts functions in the place of those of AWS's library."""

    def put(**functions: Signer) -> None:
        library = SimpleNamespace(MSKAuthTokenProvider=SimpleNamespace(**functions))
        monkeypatch.setitem(sys.modules, LIBRARY, library)

    return put


def lasting(seconds: float, token: str = "a-token") -> tuple[str, int]:
    """As the library answers: milliseconds since 1970."""
    return token, int((time.time() + seconds) * 1000)


def raising(problem: Exception) -> Signer:
    def raise_it(*_: object) -> tuple[str, int]:
        raise problem

    return raise_it


@pytest.mark.parametrize("way", ["environment", "profile"])
def test_the_token_is_a_url_signed_for_the_region(
    way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    if way == "environment":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        signing = tokens()
    else:
        text = f"[readers]\naws_access_key_id={KEY}\naws_secret_access_key={SECRET}\n"
        (tmp_path / "credentials").write_text(text)
        signing = tokens(aws_profile="readers")
    token, expires = signing.current()
    url = urlsplit(base64.urlsafe_b64decode(token + "==").decode())
    parameters = {name: value for name, (value,) in parse_qs(url.query).items()}
    assert (url.scheme, url.netloc, parameters["Action"]) == (
        "https",
        "kafka.eu-west-1.amazonaws.com",
        "kafka-cluster:Connect",
    )
    assert parameters["X-Amz-Credential"].startswith(f"{KEY}/")
    assert parameters["X-Amz-Credential"].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert 880 < expires - time.time() <= 900
    assert parameters["X-Amz-Signature"] not in caplog.text


def test_the_role_is_assumed(stand_in: Callable[..., None]) -> None:
    stand_in(generate_auth_token_from_role_arn=lambda *given: lasting(900, repr(given)))
    assert tokens(aws_role_arn=ROLE).current()[0] == repr(("eu-west-1", ROLE, "batchmerge"))


def test_every_kind_of_client_asks_by_itself(stand_in: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    """Without a token in ten seconds its constructor would raise. Also on a worker, which signs its own."""
    stand_in(generate_auth_token=lambda _region: lasting(900))
    cluster = pickle.loads(pickle.dumps(KafkaCluster("kafka", connection())))
    for make in (AdminClient, Producer, lambda settings: Consumer({**settings, "group.id": "g"})):
        make(cluster.client_settings())
    assert "a-token" not in caplog.text


def test_a_pickled_cluster_carries_no_token(stand_in: Callable[..., None]) -> None:
    stand_in(generate_auth_token=lambda _region: lasting(900))
    cluster = KafkaCluster("kafka", connection())
    assert cluster.client_settings()["oauth_cb"]("")[0] == "a-token"
    assert b"a-token" not in pickle.dumps(cluster)


def test_the_tasks_of_a_process_share_a_token(stand_in: Callable[..., None]) -> None:
    """Each has its own unpickled cluster, and dozens begin at the same moment: AWS limits how often a role is asked."""
    numbers = count(1)

    def sign(*identity: str) -> tuple[str, int]:
        return lasting(900, f"{identity[1:]} {next(numbers)}")

    stand_in(generate_auth_token=sign, generate_auth_token_from_profile=sign)
    for given, token in (({}, "() 1"), ({"aws_profile": "readers"}, "('readers',) 2")):
        pickled = pickle.dumps(KafkaCluster("kafka", connection(**given)))
        clusters: list[KafkaCluster] = [pickle.loads(pickled) for _ in range(2)]
        assert {cluster.client_settings()["oauth_cb"]("")[0] for cluster in clusters} == {token}


def test_a_token_is_signed_again_before_it_expires(stand_in: Callable[..., None]) -> None:
    signed = iter([lasting(299, "first"), lasting(900, "second")])
    stand_in(generate_auth_token=lambda _region: next(signed))
    signing = tokens()
    assert [signing.current()[0] for _ in range(3)] == ["first", "second", "second"]


def test_a_valid_token_stands_in_while_aws_gives_none(
    stand_in: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    signing = tokens()
    stand_in(generate_auth_token=lambda _region: lasting(100))
    signing.current()
    stand_in(generate_auth_token=raising(RuntimeError(SECRET)))
    assert signing.current()[0] == "a-token"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("connection kafka: AWS gives no token: RuntimeError. Fix: ")
    stand_in(generate_auth_token=lambda _region: lasting(-1))
    signing.current()
    stand_in(generate_auth_token=raising(RuntimeError(SECRET)))
    with pytest.raises(ConfigurationError, match="AWS gives no token"):
        signing.current()


@pytest.mark.parametrize(
    ("given", "keys", "kind", "says"),
    [
        ({}, False, ConfigurationError, "there are no AWS keys"),
        ({"aws_profile": "readers"}, True, ConfigurationError, "ProfileNotFound"),
        ({"aws_role_arn": ROLE}, True, Unavailable, "EndpointConnectionError"),
    ],
)
def test_no_token_has_a_cause_and_a_remedy(
    given: dict[str, str], keys: bool, kind: type[BatchmergeError], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if keys:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with pytest.raises(kind, match=f"connection kafka: .*{says}.* Fix: ") as caught:
        KafkaCluster("kafka", connection(**given)).topic_names()
    assert SECRET not in str(caught.value)


def test_a_refusal_is_named_by_its_code(stand_in: Callable[..., None]) -> None:
    stand_in(generate_auth_token_from_role_arn=raising(answer("AccessDenied", 403)))
    with pytest.raises(ConfigurationError, match=r"AWS gives no token: AccessDenied\. .*`aws_role_arn`") as caught:
        tokens(aws_role_arn=ROLE).current()
    assert SECRET not in str(caught.value)


def answer(code: str, status: int) -> Exception:
    refused: Exception = ClientError(
        {"Error": {"Code": code, "Message": SECRET}, "ResponseMetadata": {"HTTPStatusCode": status}}, "AssumeRole"
    )
    return refused


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (answer("Throttling", 400), "Throttling"),
        (answer("RequestLimitExceeded", 400), "RequestLimitExceeded"),
        (answer("TooManyRequests", 429), "TooManyRequests"),
        (answer("InternalFailure", 500), "InternalFailure"),
        (answer("503", 503), "503"),
        # The service for roles could not reach the identity provider.
        (answer("IDPCommunicationError", 400), "IDPCommunicationError"),
        (MetadataRetrievalError(error_msg=SECRET), "MetadataRetrievalError"),
        (CredentialRetrievalError(provider="container-role", error_msg=SECRET), "CredentialRetrievalError"),
        (ReadTimeoutError(endpoint_url="http://sts"), "ReadTimeoutError"),
    ],
)
def test_failures_that_pass_are_tried_again(stand_in: Callable[..., None], problem: Exception, says: str) -> None:
    stand_in(generate_auth_token_from_role_arn=raising(problem))
    with pytest.raises(Unavailable, match=f"AWS gives no token now: {says}") as caught:
        tokens(aws_role_arn=ROLE).current()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("lacking", [AttributeError("'NoneType' object has no attribute"), NoCredentialsError()])
def test_keys_that_are_missing_are_looked_for_twice(stand_in: Callable[..., None], lacking: Exception) -> None:
    """AWS's library asks an instance's metadata service once, for a second; after that there are no keys."""
    stand_in(generate_auth_token=Mock(side_effect=[lacking, lasting(900)]))
    assert tokens().current()[0] == "a-token"
    stand_in(generate_auth_token_from_profile=Mock(side_effect=[lacking, lacking]))
    with pytest.raises(ConfigurationError, match="AWS gives no token: there are no AWS keys"):
        tokens(aws_profile="readers").current()


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, LIBRARY, None)
    with pytest.raises(ConfigurationError, match=r"connection kafka: .*pip install 'batchmerge\[msk\]'"):
        KafkaCluster("kafka", connection()).topic_names()
