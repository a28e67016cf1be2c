"""Every way into a Kafka cluster, by librdkafka and by Spark; and no secret anywhere outside."""

from __future__ import annotations

import base64
import json
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives import serialization
from pyspark.sql import SparkSession

from jobs.connections_file import load_connections
from jobs.destinations.bigquery.state import STATE_TABLE
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection, Connections, IcebergConnection, KafkaConnection
from resources.errors import ConfigurationError
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster
from resources.topic_reading import read_to_end
from tests.kit import bigquery, msk_signer
from tests.kit.avro import encoded, record, text
from tests.kit.certificates import Authority
from tests.kit.clickhouse import clickhouse_flow
from tests.kit.clickhouse import rows as clickhouse_rows
from tests.kit.connections_file import connection_entries
from tests.kit.dead_letters import read_all
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.kinds import KINDS, runnable
from tests.kit.msk_signer import packed_signer
from tests.kit.network import with_connection
from tests.kit.records import COLUMNS, Record, bootstrap, produce
from tests.kit.rest_catalog import rest_catalog
from tests.kit.secure_kafka import KEY_PASSWORD, PASSWORD, USER, SecureKafka
from tests.kit.service_account import account, token_server
from tests.kit.tls_proxy import tls_proxy
from tests.kit.topics import make_topic
from tests.kit.waiting import PATIENCE
from tests.kit.web import Handler, serving
from tests.orchestration.launching import advance

ROW = record(("id", "long"), ("name", "string"), ("amount", "double"), ("op", "string"), name="Row")
NAMES = ["PLAIN", "PLAIN over TLS", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "mTLS"]
# In every test run one of each kind of client code; `make thorough` has all.
WAYS = [
    pytest.param("PLAIN", marks=pytest.mark.slow),
    "PLAIN over TLS",
    pytest.param("SCRAM-SHA-256", marks=pytest.mark.slow),
    "SCRAM-SHA-512",
    "OAUTHBEARER",
    "mTLS",
]
WRONG = [w if w in ("SCRAM-SHA-512", "mTLS") else pytest.param(w, marks=pytest.mark.slow) for w in NAMES]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


@pytest.fixture(scope="module")
def filled(secure: SecureKafka) -> str:
    """A topic with three records."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    make_topic(AdminClient({"bootstrap.servers": secure.plain}), name)
    produce(secure.plain, name, [Record(0, n, {"id": n, "name": "a", "amount": 1.0, "op": "u"}) for n in range(3)])
    return name


@pytest.fixture
def asked(
    secure: SecureKafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], list[str]]]:
    """Puts a stand-in in the place of AWS's library, here and on Spark's workers. Gives who asked, for which region."""
    packed, file = tmp_path / f"{uuid.uuid4().hex}.zip", tmp_path / "asked"
    packed_signer(packed, file, secure.tokens.url, USER, PASSWORD)
    for module in [name for name in sys.modules if name.partition(".")[0] == msk_signer.NAME]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.syspath_prepend(packed)
    spark.addArtifacts(str(packed), pyfile=True)
    yield lambda: file.read_text().splitlines()
    sys.modules.pop(msk_signer.NAME, None)


@pytest.fixture
def check_records_come_in(
    secure: SecureKafka,
    filled: str,
    connections: Connections,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
) -> Callable[[str], None]:
    """Of a way into Kafka: workers read the records and send them to the topic of dead letters, and the run says so in
    the control topic."""

    def check(way: str) -> None:
        name = uuid.uuid4().hex[:8]
        flow = Flow(filled, ["append"], overrides={"control": {"topic": f"control-{name}", "time_limit_seconds": 300}})
        flow.overrides["dead_letters"] = {"topic": f"dlq-{name}"}
        # None of the records has such an amount, so each is sent to the topic of dead letters too: by a worker.
        value = {"format": "json", "columns": {**COLUMNS, "amount": "boolean"}}
        flow.overrides["source"] = {**flow.spec_document["source"], "value": value}
        engine = Engine(flow, with_connection(connections, "kafka", secure.connection(way)), spark)
        (landed,) = engine.land()
        assert (landed.counts.read, landed.counts.quarantined) == (3, 3)
        assert engine.land() == []
        # Ours: librdkafka may say how its requests fared, and tries them again.
        warnings = [r for r in caplog.records if r.levelno >= logging.WARNING and r.name != "batchmerge.kafka"]
        assert [r.getMessage() for r in warnings] == []
        assert len(read_all(secure.plain, f"dlq-{name}", 3)) == 3
        plain = KafkaCluster("kafka", KafkaConnection(kind="kafka", bootstrap_servers=secure.plain))
        assert read_to_end(plain, f"control-{name}").num_rows > 0

    return check


def test_records_come_in_with_tokens_signed_everywhere(
    asked: Callable[[], list[str]], check_records_come_in: Callable[[str], None]
) -> None:
    """Admin and producer sign here, consumer and producer on Spark's workers."""
    check_records_come_in("AWS_MSK_IAM")
    processes = {line.split()[0] for line in asked()}
    assert {line.split()[1] for line in asked()} == {msk_signer.REGION}
    assert str(os.getpid()) in processes
    assert len(processes) > 1, "no worker has asked"


def test_a_token_that_kafka_refuses_is_a_clear_error(
    secure: SecureKafka, filled: str, connections: Connections, spark: SparkSession, asked: Callable[[], list[str]]
) -> None:
    wrong = {"aws_region": msk_signer.WRONG_REGION, "timeout_seconds": 10}
    kafka = secure.connection("AWS_MSK_IAM").model_copy(update=wrong)
    with pytest.raises(ConfigurationError, match="Kafka refuses") as caught:
        Engine(Flow(filled, ["append"]), with_connection(connections, "kafka", kafka), spark).land()
    assert asked()
    assert "connection kafka" in caught.value.where
    assert "`aws_region`" in caught.value.remedy
    assert msk_signer.NO_TOKEN not in str(caught.value)


@pytest.mark.parametrize("way", WAYS)
def test_records_come_in_every_way(way: str, check_records_come_in: Callable[[str], None]) -> None:
    check_records_come_in(way)


@pytest.mark.parametrize("way", WRONG)
def test_wrong_credentials_are_a_clear_error(
    way: str, secure: SecureKafka, filled: str, connections: Connections, spark: SparkSession
) -> None:
    right = secure.connection(way)
    wrong = {"password": "wrong-9921"} if way != "mTLS" else {"certificate_file": None, "key_file": None}
    given = {**right.model_dump(), "password": right.password, "key_password": None, "timeout_seconds": 10, **wrong}
    kafka = KafkaConnection.model_validate(given)
    with pytest.raises(ConfigurationError) as caught:
        Engine(Flow(filled, ["append"]), with_connection(connections, "kafka", kafka), spark).land()
    assert "wrong-9921" not in str(caught.value)
    assert "Kafka refuses" in caught.value.what
    assert "connection kafka" in caught.value.where
    settings = ["certificate_file", "key_file"] if way == "mTLS" else ["username", "password"]
    assert all(f"`{name}`" in caught.value.remedy for name in settings)


@pytest.mark.usefixtures("clickhouse")
def test_clickhouse_over_tls(
    connections: Connections, spark: SparkSession, topic: Callable[..., str], tmp_path: Path
) -> None:
    authority, stranger = Authority(tmp_path), tmp_path / "stranger"
    stranger.mkdir()
    plain = connections.get("clickhouse", ClickHouseConnection)
    flow = clickhouse_flow(topic(), ["upsert_delete"])
    produce(bootstrap(connections), flow.topic, [Record(0, 1, {"id": 1, "name": "a", "amount": 1.0, "op": "u"})])
    with tls_proxy(plain.endpoints[0], authority.issue("server")) as endpoint:
        given = {**plain.model_dump(), "password": plain.password, "endpoints": [endpoint], "secure": True}
        wrong = ClickHouseConnection.model_validate({**given, "ca_file": str(Authority(stranger).file)})
        engine = Engine(flow, with_connection(connections, "clickhouse", wrong), spark)
        engine.land()
        with pytest.raises(ConfigurationError, match="certificate is not trusted"):
            engine.merge("upsert_delete")
        right = ClickHouseConnection.model_validate({**given, "ca_file": str(authority.file)})
        Engine(flow, with_connection(connections, "clickhouse", right), spark).merge("upsert_delete")
    assert clickhouse_rows(connections, flow.table("upsert_delete")) == [(1, "a", 1.0)]


@pytest.mark.parametrize("way", ["SCRAM-SHA-512", pytest.param("mTLS", marks=pytest.mark.slow)])
def test_no_secret_is_anywhere_after_a_full_run(
    way: str,
    secure: SecureKafka,
    clickhouse: Path,
    instance: dg.DagsterInstance,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """Landing, a table of each kind, commit events, a failing run: then everything that they have written is searched.

    What wrong credentials of each system become: `tests/unit/resources/test_secrets.py`.
    """
    if has_bigquery := runnable(KINDS["bigquery"]):
        request.getfixturevalue("bigquery")
    own = load_connections(clickhouse / "connections.yaml")
    server = own.get("clickhouse", ClickHouseConnection)
    assert server.password is not None
    key = serialization.load_pem_private_key(secure.client.key.read_bytes(), KEY_PASSWORD.encode())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    lake_secret, registry_secret, key_id, token = (
        f"{of}-{uuid.uuid4().hex}" for of in ("lake", "registry", "id", "token")
    )
    basic = base64.b64encode(f"me:{registry_secret}".encode()).decode()
    asked: list[str] = []
    services = ExitStack()
    request.addfinalizer(services.close)
    bigquery_key = account(services.enter_context(token_server(token, asked)), key_id)
    secrets = [PASSWORD, KEY_PASSWORD, server.password.get_secret_value(), pem.splitlines()[3], lake_secret]
    secrets += [registry_secret, basic, bigquery_key["private_key"].splitlines()[3], key_id, token]
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    monkeypatch.setenv("KEY_PASSWORD", KEY_PASSWORD)
    monkeypatch.setenv("LAKE_CREDENTIAL", f"batchmerge:{lake_secret}")
    monkeypatch.setenv("REGISTRY_PASSWORD", registry_secret)
    monkeypatch.setenv("BIGQUERY_KEY", json.dumps(bigquery_key))
    lengths = {log: log.stat().st_size for log in (clickhouse / "logs").glob("*.log")}
    texts: dict[str, str] = {}
    caplog.set_level(logging.DEBUG)
    lake = services.enter_context(rest_catalog(tmp_path / "lake"))
    authority = Authority(tmp_path)
    behind = services.enter_context(serving(OneSchema))
    front = tls_proxy(urlsplit(behind).netloc, authority.issue("registry"), authorization=f"Basic {basic}")
    registry = {"kind": "schema_registry", "url": f"https://{services.enter_context(front)}", "username": "me"}
    others = {
        "lake": {**lake.model_dump(mode="json", exclude_none=True), "credential": "${env:LAKE_CREDENTIAL}"},
        "registry": {**registry, "password": "${env:REGISTRY_PASSWORD}", "ca_file": str(authority.file)},
    }
    monkeypatch.setenv("BATCHMERGE_CONNECTIONS", str(connections_with(clickhouse, secure, way, others)))
    control = f"control-{uuid.uuid4().hex[:8]}"
    flow = Flow(avro_topic(secure), ["append", "upsert"], overrides={"control": {"topic": control}})
    value = {"format": "avro", "registry": "registry", "columns": COLUMNS}
    flow.overrides["source"] = {**flow.spec_document["source"], "value": value}
    flow.overrides["tables"] = [
        {"kind": "iceberg", "table": flow.table("append"), "mode": "append"},
        {"kind": "clickhouse", "table": flow.table("upsert"), "mode": "upsert"},
        *([{"kind": "bigquery", "table": flow.table("bigquery"), "mode": "upsert"}] if has_bigquery else []),
    ]
    done = advance(instance, flow)
    assert done.success, [step.problem for step in done.steps]
    broken = Flow("absent", ["append"])
    failed = advance(instance, broken)
    assert not failed.success
    assert bool(asked) == has_bigquery, "the key was used"
    texts |= written_by(flow, way, secure, load_connections())
    texts |= {f"Dagster run {run.run_id}": dagster_texts(instance, run.run_id) for run in (done, failed)}
    for log, length in lengths.items():
        texts[f"log {log.name}"] = log.read_bytes()[length:].decode(errors="replace")
    texts["log broker"] = secure.log.read_text()
    texts["log catalog"] = (tmp_path / "lake" / "server.log").read_text()
    texts["our log"] = caplog.text
    for file in (f for f in Path(instance.root_directory).rglob("*") if f.is_file()):
        texts[f"log {file.name}"] = file.read_bytes().decode("latin-1")
    found = [where for where, text in texts.items() for secret in secrets if secret in text]
    assert found == []
    assert all(texts[where] for where in texts if not where.startswith("log ")), "nothing was looked at in vain"


class OneSchema(Handler):
    """A registry with the schema of the records."""

    def do_GET(self) -> None:
        body = {"schema": text(ROW), "id": 1, "version": 1, "subject": "all"}
        self.answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})


def avro_topic(secure: SecureKafka) -> str:
    """A topic with a record of this schema."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    settings: dict[str, Any] = {"bootstrap.servers": secure.plain}
    make_topic(AdminClient(settings), name)
    producer = Producer(settings)
    value = encoded(ROW, {"id": 1, "name": "a", "amount": 1.5, "op": "u"}, 1)
    producer.produce(name, value, json.dumps({"id": 1}).encode())
    assert producer.flush(PATIENCE) == 0
    return name


def connections_with(home: Path, secure: SecureKafka, way: str, others: dict[str, dict[str, Any]]) -> Path:
    """The stack's connections with this broker and others; secrets by reference, as a person writes them."""
    known = connection_entries(home)
    kafka = secure.connection(way).model_dump(mode="json", exclude_none=True)
    kafka |= {"password": "${env:KAFKA_PASSWORD}"} if way != "mTLS" else {"key_password": "${env:KEY_PASSWORD}"}
    known |= {"kafka": kafka, **others}
    if "bigquery" in known:
        known["bigquery"]["credentials_json"] = "${env:BIGQUERY_KEY}"
    path = secure.log.parent / f"{way}.yaml"
    path.write_text(yaml.safe_dump({"connections": known}))
    return path


def dagster_texts(instance: dg.DagsterInstance, run_id: str) -> str:
    """The run with its configuration and tags, and every event of it, as the UI gets them."""
    run = instance.get_run_by_id(run_id)
    assert run is not None
    entries = [entry.to_json() for entry in instance.all_logs(run_id)]
    return "\n".join([json.dumps(run.tags), str(run.run_config), *entries])


def written_by(flow: Flow, way: str, secure: SecureKafka, known: Connections) -> dict[str, str]:
    """Table properties and snapshot summaries, control events, rows and statements of ClickHouse, BigQuery's jobs and
    state."""
    lake = IcebergCatalog("lake", known.get("lake", IcebergConnection))
    pipeline = flow.pipeline(known)
    found = {
        f"{way}: {name}": lake.require(name).metadata.model_dump_json()
        for name in (pipeline.intermediate.identifier, flow.table("append"))
    }
    plain = KafkaCluster("kafka", KafkaConnection(kind="kafka", bootstrap_servers=secure.plain))
    events = read_to_end(plain, flow.spec.control.topic)
    found[f"{way}: control events"] = "\n".join(value.decode("latin-1") for value in events["value"].to_pylist())
    connection = known.get("clickhouse", ClickHouseConnection)
    server = ClickHouseServer("clickhouse", connection, connection.endpoints[0])
    rows = server.rows(f"SELECT * FROM tests.`{flow.name}_upsert`")
    created = server.rows("SELECT create_table_query FROM system.tables WHERE database = 'tests'")
    found[f"{way}: ClickHouse"] = json.dumps([rows, created], default=str)
    if flow.table("bigquery") in [d.table.table for d in pipeline.destinations()]:
        service = bigquery.service(known)
        jobs = [job.to_api_repr() for job in service.client.list_jobs(all_users=True)]
        states = bigquery.select(known, f"SELECT * FROM tests.{STATE_TABLE}")
        assert bigquery.select(known, f"SELECT id FROM {flow.table('bigquery')}") == [{"id": 1}]
        found[f"{way}: BigQuery"] = json.dumps([jobs, states], default=str)
    return found
