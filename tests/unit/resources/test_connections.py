"""The connections file: references, secrets, and what is reported when it is wrong."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyspark.sql.connect.client.core import DefaultChannelBuilder

from jobs.connections_file import connections_path, load_connections
from resources.config_files.mistakes import WrongFile
from resources.connections import Connections, IcebergConnection, KafkaConnection, SparkConnection
from resources.errors import ConfigurationError, Unavailable
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster
from resources.spark_address import SparkAddress

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
    monkeypatch.setenv("BROKERS", "a:1,b:2\n")  # as in a secret of Kubernetes that `echo` made
    return load_connections(tmp_path / "c.yaml")


def test_references_are_resolved_and_secrets_print_as_stars(loaded: Connections) -> None:
    kafka = loaded.get("kafka", KafkaConnection)
    assert kafka.bootstrap_servers == "a:1,b:2"
    assert kafka.password
    assert kafka.password.get_secret_value() == 'p"a\\ss'
    assert 'p"a' not in repr(kafka) + str(kafka) + kafka.model_dump_json()
    assert loaded.names() == ["kafka", "lake"]


def test_settings_of_a_kafka_client(loaded: Connections) -> None:
    cluster = KafkaCluster("kafka", loaded.get("kafka", KafkaConnection))
    client = cluster.client_settings()
    assert client["sasl.password"] == 'p"a\\ss'
    assert client["security.protocol"] == "SASL_SSL"


def test_catalog_file_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
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
        ("connections: [", ["1:15: not YAML: a value is missing, or a bracket is not closed."]),
        ("", ["1:1: there are no connections."]),
        ("conections: {}", ["1:1: conections: there is no such option here. Did you mean `connections`?"]),
        ("connections: {k: {kind: kafka}}", ["1:15: connections.k.bootstrap_servers: it is missing."]),
        ("connections: {k: {kind: kafka, bootstrap_servers: a, passwd: x}}",
         ["1:54: connections.k.passwd: there is no such option here. Did you mean `password`?"]),
        ("connections: {k: {kind: kafak}}", ["1:15: connections.k.bootstrap_servers: it is missing.",
          "1:25: connections.k.kind: the value is not one of "]),
        ("connections: {k: {kind: kafka, bootstrap_servers: '${env:NOT_SET_HERE}'}}",
         ["1:51: connections.k.bootstrap_servers: environment variable NOT_SET_HERE is not set."]),
        ("connections: {k: {kind: kafka, bootstrap_servers: '${file:/no/such}'}}",
         ["1:51: connections.k.bootstrap_servers: cannot read /no/such: No such file or directory."]),
        ("connections: {k: {kind: kafka, bootstrap_servers: a, password: 5}}",
         ["1:64: connections.k.password: the value is not text."]),
        ("connections: {k: {kind: kafka, bootstrap_servers: a, timeout_seconds: 301}}",
         ["1:71: connections.k.timeout_seconds: the value is"]),
        ("connections:\n  k: {kind: kafka, bootstrap_servers: a, timeout_seconds: soon, username: 1}\n"
         "  s: {kind: spark, remote: '${env:NOT_SET_HERE}', master: '${env:NOT_SET_EITHER}'}\n  k: {}\n",
         ["3:28: connections.s.remote: environment variable NOT_SET_HERE is not set.",
          "3:59: connections.s.master: environment variable NOT_SET_EITHER is not set.",
          "4:3: connections.k.kind: it is missing.",
          "4:3: connections.k: the key stands twice: in line 2 too."]),
        ("connections: {k: {kind: kafka, bootstrap_servers: a, security_protocol: SASL_SSL, key_file: x}}",
         ["1:15: connections.k.certificate_file: it is missing.",
          "1:15: connections.k.sasl_mechanism: SASL_SSL needs it.",
          "1:73: connections.k.security_protocol: SASL needs a user."]),
        *((f"connections: {{s: {{kind: spark, remote: 'sc://{remote}'}}}}", [f"1:40: connections.s.remote: {says}"])
          for remote, says in [
              ("h:1500x/;token=s3cret", "it is not an address of Spark Connect."),
              ("h:70000/;token=s3cret", "the port is not between 1 and 65535."),
              ("h/;s3cret", "a parameter has no `=`."),
              ("me:s3cret@h:15002", "it is not an address of Spark Connect."),
          ]),
        ("connections: {null: {kind: kafka, bootstrap_servers: '${env:NOT_SET_HERE}'}}",
         ['1:1: connections["null"].bootstrap_servers: environment variable NOT_SET_HERE is not set.']),
        ("connections: {k: {kind: kafka, bootstrap_servers: \"${file:/no/such\\0}\"}}",
         ["1:51: connections.k.bootstrap_servers: cannot read "]),
        ("connections: {s: {kind: spark, remote: 'http://h:15002'}}",
         ["1:40: connections.s.remote: it is not an address of Spark Connect."]),
    ],
)  # fmt: skip
def test_every_mistake_is_reported_with_its_place(tmp_path: Path, text: str, says: list[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(WrongFile) as caught:
        load_connections(path)
    assert caught.value.where == str(path)
    lines = [line.removeprefix(f"{path}:") for line in caught.value.what.splitlines()]
    assert len(lines) == len(says), lines
    for line, beginning in zip(lines, says, strict=True):
        assert line.startswith(beginning)
        assert " Fix: " in line or line.endswith("?")
        assert "s3cret" not in line


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_files_of_another_encoding(tmp_path: Path, encoding: str) -> None:
    path, secret = tmp_path / "c.yaml", tmp_path / "secret"
    secret.write_text("pä", encoding=encoding)
    path.write_text(f"connections: {{k: {{kind: kafka, bootstrap_servers: '${{file:{secret}}}'}}}}")
    with pytest.raises(WrongFile, match=r"connections\.k\.bootstrap_servers: cannot read .*: it is not UTF-8"):
        load_connections(path)
    path.write_text("connections: {ä: {kind: kafka, bootstrap_servers: a}}", encoding=encoding)
    with pytest.raises(ConfigurationError, match=r"it is not UTF-8 at byte \d+\. Fix: save it as UTF-8"):
        load_connections(path)


@pytest.mark.parametrize(
    ("remote", "shown", "parameters"),
    [
        ("sc://h", "h:15002", {}),
        ("sc://h:443/", "h:443", {}),
        ("sc://h:443/;use_ssl=true;token=a==#?&%3b;", "h:443", {"use_ssl": "true", "token": "a==#?&;"}),
        ("sc://h/;user_id=me;session_id=theirs;x-team=shop", "h:15002", {"user_id": "me", "x-team": "shop"}),
    ],
)
def test_address_of_spark_connect_with_parameters(remote: str, shown: str, parameters: dict[str, str]) -> None:
    address, session = SparkAddress.parse(remote), str(uuid.uuid4())
    built = DefaultChannelBuilder(address.of_session("batchmerge", session))
    assert (address.shown, built.endpoint) == (shown, shown)
    assert built._params == {"user_id": "batchmerge", **parameters, "session_id": session}


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
