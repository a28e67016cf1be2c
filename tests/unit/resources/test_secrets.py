"""Wrong credentials of the systems spoken to over HTTP or SQL: named in the error, and the secret nowhere.

The server repeats in its answer whatever it was sent, as some do. For Kafka, ClickHouse and a whole run see
`tests/integration/test_security.py`.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator

import grpc
import pytest
import sqlalchemy.exc
from dagster._utils.error import serializable_error_info_from_exc_info

from resources.bigquery import BigQuery
from resources.connections import BigQueryConnection, IcebergConnection, SchemaRegistryConnection, SparkConnection
from resources.errors import ConfigurationError, Unavailable
from resources.iceberg import IcebergCatalog
from resources.iceberg_errors import catalog_errors
from resources.schema_registry import SchemaRegistry
from resources.spark import _Patience, open_session
from resources.spark_address import SparkAddress
from tests.kit.service_account import account
from tests.kit.web import Handler, serving

SECRET = "s3cret-77"


class Refusing(Handler):
    def _refuse(self) -> None:
        sent = self.body().decode()
        request = f"{self.headers.get('Authorization')} {sent}"
        token = self.path.endswith(("/tokens", "/token"))
        error = {"error": "invalid_client", "error_description": request}
        refused = {"error": {"message": request, "type": "NotAuthorizedException", "code": 401}, "error_code": 401}
        body = json.dumps(error if token else refused).encode()
        self.answer(401, body, {"Content-Type": "application/json"})

    do_GET = do_POST = _refuse


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    with serving(Refusing) as address:
        yield address


Refused = Callable[..., str]


@pytest.fixture
def refused(caplog: pytest.LogCaptureFixture) -> Refused:
    """Checks the error of a call, and gives all that is shown of it: message, traceback, Dagster's event, logs."""
    caplog.set_level(logging.DEBUG)

    def of(call: Callable[[], object], where: str, *settings: str) -> str:
        with pytest.raises((ConfigurationError, Unavailable)) as caught:
            call()
        problem = caught.value
        event = serializable_error_info_from_exc_info((caught.type, problem, caught.tb))
        texts = [str(problem), repr(problem), *traceback.format_exception(problem), str(event), caplog.text]
        assert where in str(problem)
        assert all(f"`{setting}`" in problem.remedy for setting in settings)
        assert SECRET not in "\n".join(texts)
        return "\n".join(texts)

    return of


def lake(**given: object) -> IcebergCatalog:
    return IcebergCatalog("lake", IcebergConnection.model_validate({"kind": "iceberg", **given}))


@pytest.mark.parametrize(
    "given",
    [
        {"credential": f"me:{SECRET}"},
        {"token": SECRET},
        {"properties": {"header.Authorization": f"Basic {SECRET}"}},
    ],
)
def test_rest_catalog(given: dict[str, object], refusing: str, refused: Refused) -> None:
    refused(lambda: lake(type="rest", uri=refusing, **given).load("n.t"), "catalog lake", "credential")


@pytest.mark.parametrize(
    "given",
    [
        {"token": f"{SECRET}\n"},
        {"token": f"{SECRET}\u20ac"},
        {"properties": {"header.X-Api-Key": f"{SECRET}\n"}},
        {"uri": f"{SECRET}:8181"},
        {"uri": f"https://me:{SECRET}@"},
    ],
)
def test_request_that_cannot_be_sent(given: dict[str, object], refusing: str, refused: Refused) -> None:
    refused(lambda: lake(**{"type": "rest", "uri": refusing, **given}).load("n.t"), "catalog lake", "uri", "token")


@pytest.mark.parametrize(
    "uri",
    [
        # Passwords that should have been encoded.
        f"postgresql://me:p@{SECRET}:x/y@127.0.0.1/iceberg",
        f"postgresql://me:p@{SECRET}@127.0.0.1:5432/iceberg",
        f"postgresql://me:p@{SECRET}/y@127.0.0.1/iceberg",
        f"me:{SECRET}@127.0.0.1/iceberg",
    ],
)
@pytest.mark.parametrize("use", [lambda one: one.load("n.t"), lambda one: one.spark_settings()], ids=["load", "spark"])
def test_address_of_a_database_that_is_none(
    uri: str, use: Callable[[IcebergCatalog], object], refused: Refused
) -> None:
    refused(lambda: use(lake(type="sql", uri=uri)), "catalog lake", "uri")


def test_database_without_a_driver(refused: Refused) -> None:
    uri = f"postgresql+absent://me:{SECRET}@127.0.0.1/db"
    refused(lambda: lake(type="sql", uri=uri).load("n.t"), "", "uri")


@pytest.mark.parametrize(
    "message",
    [
        'connection to server at "db", port 5432 failed: FATAL:  password authentication failed for user "me"\n',
        'connection to server at "db" failed: FATAL:  no pg_hba.conf entry for host "h", user "me", database "d"',
        "(1045, \"Access denied for user 'me'@'localhost' (using password: YES)\")",
    ],
)
def test_database_that_refuses_the_password(message: str, refused: Refused) -> None:
    def asked() -> None:
        with catalog_errors("n.t"):
            raise sqlalchemy.exc.OperationalError(f"SELECT '{SECRET}'", {"p": SECRET}, Exception(message))

    refused(asked, "catalog", "uri")


@pytest.mark.parametrize(
    "given", [{"username": "me", "password": SECRET}, {"token": SECRET}], ids=["password", "token"]
)
def test_schema_registry(given: dict[str, str], refusing: str, refused: Refused) -> None:
    connection = SchemaRegistryConnection.model_validate({"kind": "schema_registry", "url": refusing, **given})
    refused(lambda: SchemaRegistry("registry", connection).by_id(1), "schema registry registry", *given)
    assert SECRET not in repr(connection)


def test_bigquery(refusing: str, refused: Refused) -> None:
    key = account(refusing, SECRET)
    connection = BigQueryConnection.model_validate(
        {"kind": "bigquery", "project": "p", "credentials_json": json.dumps(key), "retry_seconds": 1}
    )
    texts = refused(lambda: BigQuery("bq", connection).find_table("d.t"), "BigQuery", "credentials_json")
    for secret in (SECRET, *key["private_key"].splitlines()[1:-1]):
        assert secret not in texts + repr(connection)


def test_what_is_printed_of_a_catalog_hides_its_secrets() -> None:
    connection = IcebergConnection.model_validate(
        {
            "kind": "iceberg",
            "type": "sql",
            "uri": f"postgresql://me:{SECRET}@db/iceberg",
            "token": SECRET,
            "properties": {"s3.secret-access-key": SECRET},
            "spark_properties": {"s3.secret-access-key": SECRET},
        }
    )
    assert SECRET not in repr(connection) + str(connection)


class Gone(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


def test_spark_connect_that_does_not_answer(refused: Refused, caplog: pytest.LogCaptureFixture) -> None:
    remote = f"sc://127.0.0.1:1/;use_ssl=true;token={SECRET}"
    spark = SparkConnection(kind="spark", remote=remote)
    refused(lambda: open_session(spark, "orders/landing", {}), "127.0.0.1:1: no Spark Connect server answers")
    assert _Patience(SparkAddress.parse(remote), "orders/landing").can_retry(Gone())
    assert "Spark at 127.0.0.1:1 does not answer" in caplog.text
    assert SECRET not in caplog.text
