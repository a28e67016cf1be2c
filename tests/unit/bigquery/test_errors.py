"""BigQuery's errors in our tree, and what their messages must not hold."""

from __future__ import annotations

import re

import pytest
import requests
from google.api_core import exceptions as google
from google.auth import exceptions as auth

from resources.bigquery import BigQuery
from resources.bigquery_errors import bigquery_errors, without_values
from resources.bigquery_labels import label
from resources.connections import BigQueryConnection
from resources.errors import (
    BatchmergeError,
    CommitFailed,
    ConfigurationError,
    TableReplaced,
    TerminalError,
    TransientError,
    Unavailable,
)


def reason(kind: type[google.GoogleAPICallError], text: str, message: str = "no") -> google.GoogleAPICallError:
    return kind(message, errors=[{"reason": text, "message": message}])


def _of_metadata(cause: Exception) -> auth.RefreshError:
    """As google-auth reports what a machine's metadata server does; it keeps the server's answer, if there is one."""
    problem = auth.RefreshError(cause)
    problem.__cause__ = cause
    return problem


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (google.InternalServerError("x"), Unavailable),
        (google.BadGateway("x"), Unavailable),
        (google.ServiceUnavailable("x"), Unavailable),
        (google.TooManyRequests("x"), Unavailable),
        (reason(google.Forbidden, "rateLimitExceeded"), Unavailable),
        (reason(google.Forbidden, "quotaExceeded"), Unavailable),
        (reason(google.BadRequest, "jobBackendError"), Unavailable),
        (requests.exceptions.ConnectionError("x"), Unavailable),
        (requests.exceptions.ReadTimeout("x"), Unavailable),
        (google.RetryError("x", None), Unavailable),
        (auth.TransportError("x"), Unavailable),
        (google.PreconditionFailed("x"), CommitFailed),
        (reason(google.BadRequest, "invalidQuery", "Could not serialize access to table"), CommitFailed),
        (reason(google.BadRequest, "stopped"), TransientError),
        (google.NotFound("x"), TableReplaced),
        (reason(google.Forbidden, "accessDenied"), ConfigurationError),
        (reason(google.Forbidden, "insufficientPermissions"), ConfigurationError),
        (reason(google.Forbidden, "billingNotEnabled"), ConfigurationError),
        (reason(google.Forbidden, "blocked"), TerminalError),
        (reason(google.Forbidden, "responseTooLarge"), TerminalError),
        (google.Unauthorized("x"), ConfigurationError),
        (auth.DefaultCredentialsError("x"), ConfigurationError),
        (auth.RefreshError("x"), ConfigurationError),
        (auth.RefreshError("x", retryable=True), Unavailable),  # 503 of the token endpoint
        (_of_metadata(auth.TransportError("no answer")), Unavailable),
        (_of_metadata(auth.TransportError("the machine has no account", "404")), ConfigurationError),
        (reason(google.BadRequest, "invalidQuery"), TerminalError),
        (reason(google.BadRequest, "invalid"), TerminalError),
        (reason(google.BadRequest, "resourcesExceeded"), TerminalError),
        (reason(google.BadRequest, "invalidQuery", "Too many partitions produced by query"), TerminalError),
    ],
    ids=repr,
)
def test_what_becomes_of_an_error(problem: Exception, kind: type[BatchmergeError]) -> None:
    with pytest.raises(BatchmergeError) as found, bigquery_errors("d.t"):
        raise problem
    assert type(found.value) is kind
    assert found.value.where == "d.t"


@pytest.mark.parametrize("problem", [google.Unauthorized("x"), google.Forbidden("x"), auth.RefreshError("x")], ids=repr)
def test_refused_access_names_system_and_settings(problem: Exception) -> None:
    with pytest.raises(ConfigurationError, match="BigQuery") as found, bigquery_errors("d.t"):
        raise problem
    assert all(f"`{setting}`" in found.value.remedy for setting in ("credentials_file", "credentials_json"))


@pytest.mark.parametrize(
    ("given", "fix"),
    [("accessDenied", "grant roles"), ("billingNotEnabled", "enable billing"), ("responseTooLarge", ""),
     ("blocked", "Google's support")],
)  # fmt: skip
def test_only_who_lacks_roles_is_advised_to_grant_some(given: str, fix: str) -> None:
    with pytest.raises(BatchmergeError) as found, bigquery_errors("d.t"):
        raise reason(google.Forbidden, given)
    assert fix in found.value.remedy
    assert ("roles" in found.value.remedy) is (given == "accessDenied")


def test_a_query_that_meets_its_own_id_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = BigQuery("b", BigQueryConnection(kind="bigquery", project="p", endpoint="http://127.0.0.1:1"))
    answers: list[Exception | list[str]] = [google.Conflict("Already Exists: Job"), ["row"]]

    def answer(*_: object, **__: object) -> list[str]:
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    monkeypatch.setattr(found.client, "query_and_wait", answer)
    assert found.read("SELECT 1", {}, "d.t") == ["row"]
    assert answers == []


@pytest.mark.parametrize(
    "message",
    [
        "Could not convert 'secret-7' to INT64",
        'Bad value "secret-7" in column x',
        "Bad int64 value: secret-7",
        "Could not parse string secret-7 as date",
        "400 POST https://host/path?x: Invalid literal secret-7",
        "first line\nsecret-7",
    ],
)
def test_messages_lose_values(message: str) -> None:
    assert "secret-7" not in without_values(message)


def test_secret_of_the_connection_is_not_shown() -> None:
    connection = BigQueryConnection.model_validate(
        {"kind": "bigquery", "project": "p", "credentials_json": '{"private_key": "secret-7"'}
    )
    with pytest.raises(ConfigurationError) as found:
        BigQuery("bq", connection).client  # noqa: B018 - opening it is what fails
    assert "secret-7" not in str(found.value) + repr(connection)
    assert "connection bq" in str(found.value)


def test_credentials_are_given_in_one_way() -> None:
    with pytest.raises(ValueError, match="either"):
        BigQueryConnection.model_validate(
            {"kind": "bigquery", "project": "p", "credentials_json": "{}", "credentials_file": "f"}
        )


def test_labels_of_different_texts_differ() -> None:
    """What is left behind is known by them."""
    assert label("d.plain-name") == "d_plain-name"
    long = "cdc.production_postgres_main_public_customer_subscription_invoice"
    texts = ["Run", "run", "rUn", f"{long}s", f"{long}_lines", f"{long}_Lines", "x" * 63, "Ünï/" + "x" * 90]
    found = [label(text) for text in texts]
    assert len({*found}) == len(texts)
    assert all(re.fullmatch(r"[a-z0-9_-]{1,63}", one) for one in found)
