"""AWS Glue Schema Registry, asked through boto3 from a stand-in for the service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from resources.connections import GlueSchemaRegistryConnection
from resources.errors import ConfigurationError, TerminalError, Unavailable
from resources.glue_schema_registry import GlueSchemaRegistry
from resources.registries import open_registry
from tests.kit.glue_registry import GlueService, glue_service

SECRET = "hunter2-secret"
UNKNOWN = "00010203-0405-0607-0809-0a0b0c0d0e0f"
KEYS = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": SECRET}
Service = tuple[str, type[GlueService]]


@pytest.fixture(autouse=True)
def no_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None that the machine of the tests may have."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def service() -> Iterator[Service]:
    with glue_service() as running:
        yield running


def registry(url: str, **given: object) -> GlueSchemaRegistry:
    connection = {"kind": "glue_schema_registry", "region": "eu-west-1", "endpoint_url": url, "timeout_seconds": 5}
    opened = open_registry("glue", GlueSchemaRegistryConnection.model_validate({**connection, **given}))
    assert isinstance(opened, GlueSchemaRegistry)
    return opened


@pytest.mark.parametrize("format", ["AVRO", "JSON", "PROTOBUF"])
def test_a_version_is_asked_for_once(service: Service, format: str) -> None:
    url, kept = service
    version, asked = kept.register("text", format), registry(url, **KEYS)
    for _ in range(2):
        found = asked.by_id(version)
        assert found is not None
        assert (found.id, found.type, found.texts, found.names) == (version, format, ("text",), ("",))
    assert kept.asked == [(version, "AKIAEXAMPLE")]
    assert asked.by_id(UNKNOWN) is None
    assert asked.by_id(7) is None, "a number is the id of another registry"
    asked.answers()
    assert [wanted for wanted, _ in kept.asked[1:]] == [UNKNOWN, "00000000-0000-0000-0000-000000000000"]


@pytest.mark.parametrize(
    ("status", "code", "error", "says"),
    [
        (400, "AccessDeniedException", ConfigurationError, "refuses the credentials: AccessDeniedException"),
        (400, "UnrecognizedClientException", ConfigurationError, "glue:GetSchemaVersion"),
        (403, "InvalidSignatureException", ConfigurationError, "access_key_id"),
        (400, "ExpiredTokenException", ConfigurationError, "refuses the credentials"),
        (400, "ThrottlingException", Unavailable, "does not answer: ThrottlingException"),
        (500, "InternalServiceException", Unavailable, "does not answer"),
        (503, "", Unavailable, "does not answer"),
        (400, "InvalidInputException", TerminalError, "refuses the request: InvalidInputException"),
    ],
)
def test_answers_that_are_none(service: Service, status: int, code: str, error: type[Exception], says: str) -> None:
    url, kept = service
    kept.failure = (status, code)
    with pytest.raises(error) as caught:
        registry(url, **KEYS, session_token=SECRET).by_id(UNKNOWN)
    assert says in str(caught.value)
    assert "schema registry glue" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "AKIAEXAMPLE" not in str(caught.value)


def test_nobody_answers() -> None:
    with pytest.raises(Unavailable, match="EndpointConnectionError"):
        registry("http://127.0.0.1:9", **KEYS).answers()


def test_without_keys(service: Service, tmp_path: Path) -> None:
    url, kept = service
    with pytest.raises(ConfigurationError, match="there are no AWS keys"):
        registry(url).answers()
    with pytest.raises(ConfigurationError, match="there are no AWS keys"):
        registry(url, profile="shop").answers()
    (tmp_path / "credentials").write_text(f"[shop]\naws_access_key_id=AKIAPROFILE\naws_secret_access_key={SECRET}\n")
    registry(url, profile="shop").answers()
    assert [key for _, key in kept.asked] == ["AKIAPROFILE"]


def test_the_identity_of_the_machine(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    url, kept = service
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMACHINE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    registry(url).answers()
    assert [key for _, key in kept.asked] == ["AKIAMACHINE"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"access_key_id": "a"}, "belong together"),
        ({"secret_access_key": SECRET}, "belong together"),
        ({"session_token": SECRET}, "goes with `access_key_id` only"),
        ({**KEYS, "profile": "shop"}, "give one of them"),
    ],
)
def test_mistakes_in_the_connection(given: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        registry("http://127.0.0.1:9", **given)
    assert says in str(caught.value)


def test_what_is_printed_of_a_connection_hides_its_secrets() -> None:
    connection = {"kind": "glue_schema_registry", "region": "eu-west-1", **KEYS, "session_token": SECRET}
    found = GlueSchemaRegistryConnection.model_validate(connection)
    assert SECRET not in repr(found) + str(found)
