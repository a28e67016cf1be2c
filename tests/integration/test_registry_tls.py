"""A real Schema Registry behind TLS, client certificates, basic and bearer authentication."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from resources.connections import Connections, SchemaRegistryConnection
from resources.errors import BatchmergeError, ConfigurationError
from resources.schema_registry import SchemaRegistry
from tests.kit.avro import encoded, record, text
from tests.kit.certificates import Authority, Certificate
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.network import with_connection
from tests.kit.records import bootstrap
from tests.kit.registry import register, running_registry
from tests.kit.tls_proxy import tls_proxy
from tests.kit.waiting import PATIENCE

SECRET, KEY_SECRET = "hunter2-7731", "key-secret-5521"
ROW = record(("id", "long"), ("name", "string"), ("amount", "double"), ("op", "string"), name="Row")


@dataclass(frozen=True)
class Secured:
    """A registry and what is in front of it."""

    plain: str
    authority: Authority
    stranger: Authority
    client: Certificate

    def at(self, endpoint: str) -> str:
        return f"https://{endpoint}{urlsplit(self.plain).path}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folders = [tmp_path_factory.mktemp(name) for name in ("authority", "stranger", "registry")]
    authority, stranger = Authority(folders[0]), Authority(folders[1])
    with running_registry(folders[2]) as url:
        register(url, "row-value", text(ROW))
        yield Secured(url, authority, stranger, authority.issue("client", KEY_SECRET))


def connection(url: str, **more: object) -> SchemaRegistryConnection:
    return SchemaRegistryConnection.model_validate(
        {"kind": "schema_registry", "url": url, "timeout_seconds": 10, **more}
    )


def ask(url: str, **more: object) -> list[str]:
    return SchemaRegistry("reg", connection(url, **more)).subjects()


def refused(problem: str, remedy: str, url: str, **more: object) -> None:
    with pytest.raises(BatchmergeError, match=problem) as caught:
        ask(url, **more)
    assert isinstance(caught.value, ConfigurationError)
    message = f"{caught.value} {caught.value.remedy}"
    assert remedy in message
    assert "schema registry reg" in message
    assert SECRET not in message
    assert KEY_SECRET not in message


def test_tls(secured: Secured) -> None:
    with tls_proxy(urlsplit(secured.plain).netloc, secured.authority.issue("server")) as endpoint:
        assert ask(secured.at(endpoint), ca_file=str(secured.authority.file)) == ["row-value"]
        refused("is not trusted", "ca_file", secured.at(endpoint), ca_file=str(secured.stranger.file))
        refused("is not trusted", "ca_file", secured.at(endpoint))


def test_client_certificates(secured: Secured) -> None:
    server, clients = secured.authority.issue("mtls-server"), secured.authority.file
    with tls_proxy(urlsplit(secured.plain).netloc, server, clients) as endpoint:
        url, trusted = secured.at(endpoint), {"ca_file": str(secured.authority.file)}
        own = {"certificate_file": str(secured.client.certificate), "key_file": str(secured.client.key)}
        assert ask(url, **trusted, **own, key_password=KEY_SECRET) == ["row-value"]
        refused("refuses the client's certificate, or wants one", "certificate_file", url, **trusted)
        other = secured.stranger.issue("other")
        files = {"certificate_file": str(other.certificate), "key_file": str(other.key)}
        refused("refuses the client's certificate, or wants one", "certificate_file", url, **trusted, **files)
        refused("a TLS file cannot be used", "key_file", url, **trusted, **own, key_password=f"not-{KEY_SECRET}")
        refused("a TLS file cannot be used", "key_file", url, **trusted, **own)


@pytest.mark.parametrize("way", ["basic", "bearer"])
def test_credentials(way: str, secured: Secured) -> None:
    basic = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
    wanted = {"basic": basic, "bearer": f"Bearer {SECRET}"}[way]
    given: dict[str, object] = {"username": "me", "password": SECRET} if way == "basic" else {"token": SECRET}
    name, trusted = urlsplit(secured.plain).netloc, {"ca_file": str(secured.authority.file)}
    with tls_proxy(name, secured.authority.issue("auth"), authorization=wanted) as endpoint:
        asked = SchemaRegistry("reg", connection(secured.at(endpoint), **trusted, **given))
        assert asked.subjects() == ["row-value"]
        stored = asked.latest("row-value")
        assert stored is not None
        assert asked.by_id(stored.id) == stored
        refused("refuses the credentials", "username", secured.at(endpoint), **trusted)
        wrong = {field: f"{SECRET}-" for field in given if field != "username"}
        refused("refuses the credentials", "password", secured.at(endpoint), **trusted, **{**given, **wrong})


def test_records_are_landed_with_all_of_it(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], secured: Secured
) -> None:
    columns = {"id": "long", "name": "string", "amount": "double", "op": "string"}
    value: dict[str, Any] = {"format": "avro", "registry": "registry", "columns": columns}
    name = topic()
    flow = Flow(name, ["append"], overrides={"source": {"topics": [name], "value": value}, "changes": {}})
    schema_id = register(secured.plain, f"{name}-value", text(ROW))
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    producer.produce(name, encoded(ROW, {"id": 1, "name": "a", "amount": 1.5, "op": "c"}, schema_id))
    assert producer.flush(PATIENCE) == 0
    front = tls_proxy(
        urlsplit(secured.plain).netloc, secured.authority.issue("all"), secured.authority.file, f"Bearer {SECRET}"
    )
    with front as endpoint:
        own = connection(
            secured.at(endpoint),
            token=SECRET,
            ca_file=str(secured.authority.file),
            certificate_file=str(secured.client.certificate),
            key_file=str(secured.client.key),
            key_password=KEY_SECRET,
        )
        wrong = own.model_copy(update={"certificate_file": None})
        with pytest.raises(ConfigurationError, match="wants one"):
            Engine(flow, with_connection(connections, "registry", wrong), spark).land()
        engine = Engine(flow, with_connection(connections, "registry", own), spark)
        engine.advance()
    assert engine.read("append") == [(1, "a", 1.5)]
