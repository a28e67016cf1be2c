"""The connections file: references, secrets, and what is said when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from resources.connections import (
    Connections,
    IcebergConnection,
    KafkaConnection,
    SparkConnection,
    connections_path,
    load_connections,
)
from resources.errors import ConfigurationError, Unavailable
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster

FILE = """
connections:
  kafka:
    kind: kafka
    bootstrap_servers: ${env:BROKERS}
    security_protocol: SASL_SSL
    sasl_mechanism: SCRAM-SHA-512
    username: me
    password: ${file:%s}
  lake:
    kind: iceberg
    type: sql
    uri: sqlite:////data/c.db
    warehouse: file:///data/w
"""


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connections:
    (tmp_path / "password").write_text('p"a\\ss\n')
    (tmp_path / "c.yaml").write_text(FILE % (tmp_path / "password"))
    monkeypatch.setenv("BROKERS", "a:1,b:2")
    return load_connections(tmp_path / "c.yaml")


def test_references_are_resolved_and_secrets_print_as_stars(loaded: Connections) -> None:
    kafka = loaded.get("kafka", KafkaConnection)
    assert kafka.bootstrap_servers == "a:1,b:2"
    assert kafka.password
    assert kafka.password.get_secret_value() == 'p"a\\ss'
    assert 'p"a' not in repr(kafka) + str(kafka) + kafka.model_dump_json()
    assert loaded.names() == ["kafka", "lake"]


def test_kafka_settings_of_both_clients(loaded: Connections) -> None:
    cluster = KafkaCluster("kafka", loaded.get("kafka", KafkaConnection))
    client = cluster.client_settings()
    assert client["sasl.password"] == 'p"a\\ss'
    assert client["security.protocol"] == "SASL_SSL"
    options = cluster.spark_options()
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="p\\"a\\\\ss";'
    )


def test_catalog_has_one_name_on_both_sides(loaded: Connections) -> None:
    settings = IcebergCatalog("lake", loaded.get("lake", IcebergConnection)).spark_settings()
    assert settings["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert settings["spark.sql.catalog.lake.type"] == "jdbc"
    assert settings["spark.sql.catalog.lake.uri"] == "jdbc:sqlite:/data/c.db"
    assert settings["spark.sql.catalog.lake.warehouse"] == "file:///data/w"


def test_catalog_file_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    missing = IcebergConnection(
        kind="iceberg", type="sql", uri=f"sqlite:///{tmp_path / 'gone.db'}", warehouse="file:///w"
    )
    with pytest.raises(Unavailable, match="does not exist"):
        IcebergCatalog("lake", missing).load("n.t")
    assert not (tmp_path / "gone.db").exists()


def test_unknown_name_and_wrong_kind(loaded: Connections) -> None:
    with pytest.raises(ConfigurationError, match=r"no connection named 'kafak' \(known: kafka, lake\)"):
        loaded.get("kafak", KafkaConnection)
    with pytest.raises(ConfigurationError, match="is a KafkaConnection, not a SparkConnection"):
        loaded.get("kafka", SparkConnection)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("connections: [", "not valid YAML"),
        ("conections: {}", "connections: Field required"),
        ("connections: {k: {kind: kafka}}", "bootstrap_servers: Field required"),
        ("connections: {k: {kind: kafka, bootstrap_servers: a, passwd: x}}", "passwd: Extra inputs are not permitted"),
        ("connections: {k: {kind: oracle}}", "kind"),
        ("connections: {k: {kind: kafka, bootstrap_servers: '${env:NOT_SET_HERE}'}}", "NOT_SET_HERE is not set"),
        ("connections: {k: {kind: kafka, bootstrap_servers: '${file:/no/such}'}}", "cannot read /no/such"),
        ("connections: {k: {kind: kafka, bootstrap_servers: a, password: 5}}", "password"),
        ("", "Input should be"),
    ],
)
def test_wrong_file_is_told_in_its_own_words(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=says) as caught:
        load_connections(path)
    assert caught.value.where == str(path)
    assert caught.value.remedy


def test_resolved_secret_is_not_in_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOP_SECRET", "hunter2")
    path = tmp_path / "c.yaml"
    path.write_text("connections: {k: {kind: kafka, bootstrap_servers: a, timeout_seconds: '${env:TOP_SECRET}'}}")
    with pytest.raises(ConfigurationError) as caught:
        load_connections(path)
    assert "hunter2" not in str(caught.value)


def test_where_the_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path))
    monkeypatch.delenv("BATCHMERGE_CONNECTIONS", raising=False)
    assert connections_path() == tmp_path / "connections.yaml"
    with pytest.raises(ConfigurationError, match="batchmerge up"):
        load_connections()
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(tmp_path / "other.yaml"))
    assert connections_path() == tmp_path / "other.yaml"
