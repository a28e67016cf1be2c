"""Connectors' configurations become pipeline files that load, and connections without a secret in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from jobs.connect_import.building import Imported, build, pipeline_name
from jobs.connect_import.configuration import Configuration, read_configuration
from jobs.connect_import.known import KnownTable
from jobs.connect_import.offsets import start
from jobs.connect_import.sink import sink_of
from jobs.connect_import.writing import connections_file, pipeline_file, report
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.spec.members import expand
from jobs.spec.new_tables import Named, all_tables
from jobs.spec.open_key import key_is_open
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.pipeline_file import is_name
from resources.connections import Connections, IcebergConnection, KafkaConnection
from resources.errors import ConfigurationError
from resources.topic_partition import TopicPartition
from tests.kit import specs

SECRET = "hunter2"
CONVERTERS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
TABULAR = {
    "connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector",
    "topics": "events, orders",
    "iceberg.tables": "db.events,db.orders",
    "iceberg.tables.route-field": "kind",
    "iceberg.table.db.events.route-regex": "e.*",
    "iceberg.table.db.orders.route-regex": "order",
    "iceberg.tables.default-id-columns": "id",
    "iceberg.tables.cdc-field": "op",
    "iceberg.table.db.events.partition-by": "days(at), bucket(id, 16)",
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.write-props.write.format.default": "orc",
    "iceberg.control.commit.interval-ms": "600000",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://catalog",
    "iceberg.catalog.credential": SECRET,
    "iceberg.catalog.s3.secret-access-key": SECRET,
    "iceberg.catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "consumer.override.sasl.mechanism": "PLAIN",
    "consumer.override.sasl.jaas.config": f'PlainLoginModule required password="{SECRET}";',
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "dlq",
    **CONVERTERS,
}
APACHE = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics.regex": "events_.*",
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "target",
    "iceberg.tables.default-id-columns": "id",
    "iceberg.control.commit.max-consecutive-failures": "4",
    "iceberg.catalog.type": "glue",
    **CONVERTERS,
}
CLICKHOUSE = {
    "connector.class": "com.clickhouse.kafka.connect.ClickHouseSinkConnector",
    "topics": "a,b,c",
    "hostname": "ch",
    "port": "8443",
    "database": "shop",
    "password": SECRET,
    "ssl": "true",
    "exactlyOnce": "true",
    "topic2TableMap": "b=orders, c=orders",
    "clickhouseSettings": "max_memory_usage=10,insert_quorum=2",
    "retryCount": "5",
    "bufferCount": "1000",
    "auto.evolve": "true",
    **CONVERTERS,
}
BIGQUERY = {
    "connector.class": "com.wepay.kafka.connect.bigquery.BigQuerySinkConnector",
    "topics": "shop.orders",
    "project": "p",
    "defaultDataset": "d",
    "keySource": "JSON",
    "keyfile": f'{{"private_key": "{SECRET}"}}',
    "sanitizeTopics": "true",
    "upsertEnabled": "true",
    "deleteEnabled": "true",
    "kafkaKeyFieldName": "key",
    "kafkaDataFieldName": "kafkaData",
    "mergeIntervalMs": "120000",
    "mergeRecordsThreshold": "500",
    "timePartitioningType": "MONTH",
    "timestampPartitionFieldName": "at",
    "clusteringPartitionFieldNames": "a,b",
    "allowNewBigQueryFields": "true",
    **CONVERTERS,
}
COLUMNS = {
    "id": "long",
    "kind": "string",
    "op": "string",
    "at": "timestamp",
    "target": "string",
    "a": "int",
    "b": "int",
}


def made(options: dict[str, str], **more: Any) -> tuple[Imported, PipelineSpec]:
    imported = build(Configuration("My-Sink.1", options), COLUMNS, **more)
    document = yaml.safe_load(pipeline_file(imported))
    assert document["type"] == "batchmerge.KafkaPipeline"
    every = pipeline_file(imported) + connections_file(imported) + "\n".join(report(imported))
    assert SECRET not in every
    assert set(imported.reports) == set(options)
    return imported, PipelineSpec.model_validate(document["attributes"])


def test_tabular_sink_with_routes_and_changes() -> None:
    imported, spec = made(TABULAR)
    assert imported.name == "my_sink_1"
    assert [line.split(":")[0] for line in imported.todo] == ["changes.order_by"]
    events, orders = spec.tables
    assert (events.table, events.mode, orders.table) == ("db.events", "upsert_delete", "db.orders")
    assert events.route is not None
    assert (events.route.field, events.route.matches) == ("kind", "e.*")
    assert spec.unrouted == "skip", "so did the sink"
    assert isinstance(events, IcebergTable)
    assert events.partition_by == ["day(at)", "bucket(16, id)"]
    assert events.properties == {"write.format.default": "orc"}
    assert (events.create, events.evolve.add_columns) == (True, False)
    assert spec.changes.key is not None
    assert spec.changes.op is not None
    assert (spec.changes.key.columns, spec.changes.key.source, spec.changes.op.field) == (["id"], "value", "_op")
    assert spec.changes.tombstones == "skip", "the sink passes over records without a value"
    assert (spec.cron, spec.on_bad_record, spec.dead_letters.topic) == ("*/10 * * * *", "quarantine", "dlq")
    lake = imported.connections["lake"]
    assert lake["credential"] == "${env:ICEBERG_CATALOG_CREDENTIAL}"
    assert lake["properties"]["s3.secret-access-key"] == "${env:ICEBERG_CATALOG_S3_SECRET_ACCESS_KEY}"
    assert lake["properties"]["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert imported.connections["kafka"]["password"] == "${env:KAFKA_PASSWORD}"


def test_spaces_around_both_parts_of_a_pair_mean_nothing() -> None:
    spaced = {"topic2TableMap": "b = orders ,c= orders", "clickhouseSettings": "max_memory_usage = 10"}
    imported, spec = made({**CLICKHOUSE, **spaced})
    assert {t.table: t.route.topics for t in spec.tables if t.route} == {"shop.a": ["a"], "shop.orders": ["b", "c"]}
    assert imported.connections["clickhouse"]["settings"] == {"max_memory_usage": "10"}


def test_keys_of_single_tables_of_a_database_are_to_do() -> None:
    """A topic's table is not known, so the key cannot be written; passed over, other columns would identify a row."""
    database = {
        **{name: text for name, text in TABULAR.items() if "iceberg.table" not in name and name != "topics"},
        "topics.regex": "cdc.*",
        "iceberg.tables.dynamic-enabled": "true",
        "iceberg.tables.route-field": "_cdc.target",
        "iceberg.tables.cdc-field": "_cdc.op",
        "transforms": "dbz",
        "transforms.dbz.type": "io.tabular.iceberg.connect.transforms.DebeziumTransform",
        "iceberg.table.public.users.id-columns": "user_id",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    }
    imported = build(Configuration("sink", database))
    (todo,) = (line for line in imported.todo if line.startswith("iceberg.table.public.users.id-columns"))
    assert "user_id identified a row in the sink, and the record's key does so here" in todo
    (changes,) = re.findall("`(changes: .*)`", todo)
    own = {**yaml.safe_load(changes), "source": {"value": {"columns": {"user_id": "long not null"}}}}
    spec = PipelineSpec.model_validate({**imported.document, "overrides": {"cdc.public.users": own}})
    (member,) = expand("s", spec, ["cdc.public.users"]).members
    assert member.spec.changes.key
    assert (member.spec.changes.key.columns, member.spec.changes.key.source) == (["user_id"], "value")
    same = build(Configuration("sink", {**database, "iceberg.tables.default-id-columns": "user_id"}))
    assert not any("id-columns" in line for line in same.todo)


@pytest.mark.parametrize("creates", [True, False])
def test_tables_that_records_name(creates: bool) -> None:
    """The sink passes over records that name none; over those of missing ones too, unless it makes tables."""
    imported, spec = made({**APACHE, "iceberg.tables.auto-create-enabled": str(creates).lower()})
    assert (spec.unrouted, spec.tables[0].create) == ("skip", creates)
    assert spec.new_tables
    names = ("orders", "lake.my-db.orders", "db.c")
    allowed = {name for name in names if re.fullmatch(spec.new_tables.allow, name)}
    assert allowed == {"lake.my-db.orders", "db.c", *(["orders"] if creates else [])}
    assert [t.table for t in all_tables(spec, [Named("lake.my-db.orders")])] == ["lake.my-db.orders"]
    (todo,) = (line for line in imported.todo if line.startswith("new_tables"))
    assert "at most 100 tables" in todo
    assert ("--table" in todo) is not creates


@pytest.mark.parametrize("given", [["token"], ["credential"], ["token", "credential"]])
def test_what_lets_a_client_into_the_catalog(given: list[str]) -> None:
    rest = {"iceberg.catalog.type": "rest", **{f"iceberg.catalog.{name}": SECRET for name in given}}
    lake = made({**APACHE, **rest})[0].connections["lake"]
    found = {name: text for name, text in lake.items() if name in ("token", "credential")}
    assert found == {given[-1]: f"${{env:ICEBERG_CATALOG_{given[-1].upper()}}}"}


def test_apache_sink_appends_and_routes_by_name() -> None:
    _, spec = made(APACHE)
    assert [(t.table, t.mode) for t in all_tables(spec, [Named("db.c")])] == [("db.c", "append")]
    imported, spec = made(APACHE, tables=["db.a", "db.b"])
    assert [(t.table, t.mode) for t in spec.tables] == [("db.a", "append"), ("db.b", "append")]
    assert (spec.route_by, spec.source.pattern, spec.retry.max_retries) == ("target", "events_.*", 4)
    assert spec.unrouted == "skip"
    assert spec.on_bad_record == "fail"
    assert spec.changes.key is None
    assert imported.connections["lake"]["type"] == "glue"


def test_clickhouse_sink_with_a_topic_map() -> None:
    imported, spec = made(CLICKHOUSE)
    routes = {t.table: t.route.topics for t in spec.tables if t.route}
    assert routes == {"shop.a": ["a"], "shop.orders": ["b", "c"]}
    assert (spec.retry.max_retries, spec.batch.max_records) == (5, 1000)
    connection = imported.connections["clickhouse"]
    assert connection["endpoints"] == ["ch:8443"]
    assert connection["settings"] == {"max_memory_usage": "10", "insert_quorum": "2"}
    assert connection["password"] == "${env:CLICKHOUSE_PASSWORD}"


def test_bigquery_sink_that_upserts() -> None:
    imported, spec = made(BIGQUERY)
    table = specs.entry(spec, BigQueryTable)
    assert (table.table, table.mode) == ("d.shop_orders", "upsert_delete")
    assert (table.merge_interval_seconds, table.merge_records_threshold) == (120, 500)
    assert (table.time_partitioning, table.partition_column, table.cluster_by) == ("MONTH", "at", ["a", "b"])
    assert spec.changes.key is not None
    assert spec.source.key is not None
    assert spec.changes.key.columns == ["key"]
    assert spec.source.key.columns == {"key": "string"}, "text, since the converter is the string one"
    assert table.metadata_columns == ["record as kafkaData"]
    assert imported.connections["bigquery"]["credentials_json"] == "${env:BIGQUERY_CREDENTIALS_JSON}"


def test_workload_identity_of_aivens_sink_goes_on() -> None:
    """`WIF_JSON`: the text of an external account, one of the credentials that the connection takes."""
    imported, _ = made({**BIGQUERY, "keySource": "WIF_JSON"})
    assert imported.connections["bigquery"]["credentials_json"] == "${env:BIGQUERY_CREDENTIALS_JSON}"


def test_without_columns_the_file_still_loads_and_says_so() -> None:
    fixed = {"auto.evolve": "false"}
    imported = build(Configuration("sink", {**CLICKHOUSE, **fixed}))
    assert "fill_in" in imported.document["source"]["value"]["columns"]
    assert any("--columns" in line for line in imported.todo)


@pytest.mark.parametrize("options", [TABULAR, CLICKHOUSE, BIGQUERY])
def test_columns_are_left_to_the_records_where_the_sink_made_or_changed_its_tables(options: dict[str, str]) -> None:
    value = (imported := build(Configuration("sink", options))).document["source"]["value"]
    assert value.get("unknown_fields", "add") == "add"
    assert not any("--columns" in line for line in imported.todo)
    # Only what the file names elsewhere is declared, so that it loads.
    named = {"Iceberg": {"id", "op", "kind", "at"}, "BigQuery": {"at", "a", "b"}}
    assert value.get("columns", {}).keys() == next(
        (n for k, n in named.items() if k in options["connector.class"]), set()
    )
    PipelineSpec.model_validate(imported.document)


def test_unknown_fields_go_on_as_in_the_sink() -> None:
    assert made(CLICKHOUSE)[1].source.value.unknown_fields == "add"
    assert made({**CLICKHOUSE, "auto.evolve": "false"})[1].source.value.unknown_fields == "ignore"


@pytest.mark.parametrize(
    ("sink", "times_in"), [(TABULAR, ""), (CLICKHOUSE, "seconds (of DateTime64"), (BIGQUERY, "seconds (its Storage")]
)
def test_plain_json_is_read_as_the_sinks_read_it(sink: dict[str, str], times_in: str) -> None:
    imported, spec = made(sink)
    assert spec.source.value.convert == "best_fit"
    asked = [line for line in imported.todo if line.startswith("source.value.time_unit: JSON numbers for at are")]
    assert len(asked) == bool(times_in)
    assert all(times_in in line for line in asked)
    imported, _ = made({**sink, "value.converter.schemas.enable": "true"})
    assert not any("time_unit" in line for line in imported.todo)
    asked = [line for line in imported.todo if line.startswith("source.value.columns: numbers without a logical type")]
    assert len(asked) == bool(times_in)
    assert all(f"numbers without a logical type for at are milliseconds, where the sink read {times_in}" in line
               for line in asked)  # fmt: skip


def test_rows_of_append_tables_show_their_records_so_that_dead_letters_can_be_retried() -> None:
    coordinates = ["topic", "partition", "offset"]
    for sink in ({**BIGQUERY, "upsertEnabled": "false", "deleteEnabled": "false"}, APACHE):
        assert [t.metadata_columns[:3] for t in made(sink)[1].tables] == [coordinates]
    assert [t.has_coordinates for t in made(CLICKHOUSE)[1].tables] == [True, True]
    assert made(TABULAR)[1].tables[0].metadata_columns == [], "rows with a key are recognized by it"
    inserts = {"transforms": "i", "transforms.i.type": "org.apache.kafka.connect.transforms.InsertField$Value"}
    assert made({**APACHE, **inserts, "transforms.i.topic.field": "_topic"})[1].tables[0].metadata_columns == []


def test_bigquery_sink_of_a_whole_database() -> None:
    options = {
        **{name: value for name, value in BIGQUERY.items() if "Partition" not in name and name != "topics"},
        "topics.regex": r"shop\.public\..*",
        "topic2TableMap": "shop.public.orders:all_orders",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "timePartitioningType": "NONE",
    }
    imported = build(Configuration("sink", options))
    spec = PipelineSpec.model_validate(imported.document)
    assert imported.todo == []
    assert (spec.source.for_each, spec.source.pattern) == ("topic", r"shop\.public\..*")
    assert key_is_open(spec)
    assert spec.source.key is not None
    assert (spec.source.key.format, spec.source.key.column) == ("connect_json", "key")
    members = expand("sink", spec, ["shop.public.orders", "shop.public.order-lines"]).members
    assert [m.spec.tables[0].table for m in members] == ["d.all_orders", "d.shop_public_order_lines"]


def test_tables_are_called_as_the_sinks_call_them() -> None:
    """ClickHouse's by the topic as it is; BigQuery's too, unless `sanitizeTopics` is on."""
    _, spec = made({**CLICKHOUSE, "topics": "pg.public.raw-orders", "topic2TableMap": ""})
    assert [t.table for t in spec.tables] == ["shop.pg.public.raw-orders"]
    for sanitizes, table in (("false", "d.raw-orders"), ("true", "d.raw_orders")):
        _, spec = made({**BIGQUERY, "topics": "raw-orders", "sanitizeTopics": sanitizes})
        assert [t.table for t in spec.tables] == [table]
    _, spec = made({**BIGQUERY, "topics": "raw-a,raw-b", "sanitizeTopics": "false"})
    assert [m.spec.tables[0].table for m in expand("s", spec, ["raw-a", "raw-b"]).members] == ["d.raw-a", "d.raw-b"]


def test_bigquery_names_of_topics_with_a_dataset_and_of_topics_beside_a_map() -> None:
    router = {"transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter"}
    other = {**router, "transforms.r.regex": "(.*)", "transforms.r.replacement": "other:$1"}
    _, spec = made({**BIGQUERY, **other, "topics": "raw-orders"})
    assert [t.table for t in spec.tables] == ["other.raw_orders"]
    _, spec = made({**BIGQUERY, "topics": "raw-a,c", "topic2TableMap": "c:d"})
    tables = [m.spec.tables[0].table for m in expand("s", spec, ["raw-a", "c"]).members]
    assert tables == ["d.raw-a", "d.d"], "beside a map, the sink does not sanitize"


def test_bigquery_records_that_wait_in_the_sinks_bucket_are_to_do() -> None:
    imported, _ = made({**BIGQUERY, "enableBatchLoad": "shop.orders", "gcsBucketName": "b", "gcsFolderName": "f"})
    assert [line.partition(":")[0] for line in imported.todo if "gs://b/f" in line] == ["enableBatchLoad"]


@pytest.mark.parametrize(("column", "clustered"), [("at", ["a", "b"]), ("", [])])
def test_bigquery_layout_is_the_sinks(column: str, clustered: list[str]) -> None:
    options = {**BIGQUERY, "timestampPartitionFieldName": column, "partitionExpirationMs": str(36 * 3_600_000)}
    table = specs.entry(made(options)[1], BigQueryTable)
    assert (list(table.cluster_by), table.partition_expiration_days) == (clustered, 2), "never sooner than the sink's"


@pytest.mark.parametrize(("ssl", "secure"), [({}, False), ({"ssl": "true"}, True)])
def test_clickhouse_connections_are_encrypted_as_the_sinks(ssl: dict[str, str], secure: bool) -> None:
    imported, _ = made({**{name: text for name, text in CLICKHOUSE.items() if name != "ssl"}, **ssl})
    assert imported.connections["clickhouse"]["secure"] is secure


@pytest.mark.parametrize(
    ("topics", "mark", "tables"),
    [
        (["pg.a"], ".", ["pg.a"]),
        (["pg.public.a"], ".", ["shop.pg.public.a"]),  # the sink splits names of two parts only
        (["pg.a", "crm.b-c", "pg.public.a", "crm.b"], ".", ["pg.a", "crm.b-c", "shop.pg.public.a", "crm.orders"]),
        (["pg__a", "a", "crm__b"], "__", ["pg.a", "shop.a", "crm.orders"]),
    ],
)
def test_databases_that_topics_name(topics: list[str], mark: str, tables: list[str]) -> None:
    split = {"enableDbTopicSplit": "true", "dbTopicSplitChar": mark, "topic2TableMap": "b=orders"}
    imported, spec = made({**CLICKHOUSE, **split, "topics": ",".join(topics)})
    each = [m.spec.tables[0].table for m in expand("s", spec, topics).members] if spec.source.for_each else []
    assert (each or [t.table for t in spec.tables]) == tables
    assert not any(line.startswith("tables[].table") for line in imported.todo)
    regex = {name: text for name, text in CLICKHOUSE.items() if name != "topics"} | {"topics.regex": ".*"}
    imported, spec = made({**regex, **split})
    assert any(line.startswith("tables[].table: databases are what topics") for line in imported.todo)


@pytest.mark.parametrize("topics", ["a", "a,b"])
@pytest.mark.parametrize(
    ("sink", "option"), [(CLICKHOUSE, "database"), ({**BIGQUERY, "sanitizeTopics": "false"}, "defaultDataset")]
)
def test_databases_that_only_connect_knows(sink: dict[str, str], option: str, topics: str) -> None:
    imported, spec = made({**sink, "topic2TableMap": "", "topics": topics, option: "${env:CH_DB}"})
    assert spec.tables[0].table == ("fill_in.a" if topics == "a" else "fill_in.{topic}")
    assert any(line.startswith(f"{option}: only Connect knows") for line in imported.todo)


def test_databases_with_braces_are_no_templates() -> None:
    imported = build(Configuration("s", {**CLICKHOUSE, "topic2TableMap": "", "topics": "a,b", "database": "{x}"}))
    assert any("{x}" in line for line in imported.todo)


def test_clickhouse_tables_with_versions_of_the_sink_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="versions by the source's position") as caught:
        made({**CLICKHOUSE, "debeziumCDCEnabled": "true"})
    assert "mode upsert_delete" in (caught.value.remedy or "")
    assert made({**CLICKHOUSE, "debeziumCDCEnabled": "false"})[1].tables[0].mode == "append"


def test_options_that_the_apache_sink_passes_over_are_called_so() -> None:
    cdc = {"iceberg.tables.cdc-field": "op", "iceberg.tables.upsert-mode-enabled": "true"}
    imported, spec = made({**APACHE, **cdc})
    texts = {name: option.text for name, option in imported.reports.items()}
    for name in (*cdc, "iceberg.tables.default-id-columns"):
        assert "only appends" in texts[name]
    assert spec.tables[0].mode == "append"


def test_case_and_optional_columns_as_the_iceberg_sink_has_them() -> None:
    assert not {"ignore_case", "force_optional"} & made(APACHE)[0].document.keys()
    flags = {"iceberg.tables.schema-case-insensitive": "true", "iceberg.tables.schema-force-optional": "true"}
    imported, spec = made({**APACHE, **flags})
    todo = [line.split(":")[0] for line in imported.todo]
    assert (spec.ignore_case, spec.force_optional, todo) == (True, True, ["new_tables"])
    # A schema names the fields, and the pipeline file's rules refuse `ignore_case` there.
    imported, spec = made({**APACHE, **flags, "value.converter.schemas.enable": "true"})
    assert (spec.ignore_case, spec.force_optional) == (False, True)
    assert [line.split(":")[0] for line in imported.todo] == ["new_tables", "iceberg.tables.schema-case-insensitive"]


@pytest.mark.parametrize(
    ("sink", "names"),
    [
        (BIGQUERY, ["max.retries", "mergeIntervalMs", "mergeRecordsThreshold", "partitionExpirationMs"]),
        (CLICKHOUSE, ["bufferCount", "clickhouseClientInsertTimeoutMs", "retryCount", "timeoutSeconds"]),
        (APACHE, ["iceberg.control.commit.interval-ms", "iceberg.control.commit.max-consecutive-failures"]),
    ],
)
def test_numbers_that_the_configuration_only_refers_to(sink: dict[str, str], names: list[str]) -> None:
    imported, _ = made({**sink, **dict.fromkeys(names, "${file:/etc/sink.properties:number}")})
    assert [line.split(":")[0] for line in imported.todo if "only Connect knows" in line] == names
    made({**sink, **dict.fromkeys(names, "")})


def test_secrets_inside_urls_are_references_too() -> None:
    registry = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": f"https://me:{SECRET}@r1:8081,https://me:{SECRET}@r2",
        "value.converter.basic.auth.credentials.source": "URL",
    }
    imported, _ = made({**CLICKHOUSE, **registry})
    found = imported.connections["registry"]
    assert (found["url"], found["password"]) == ("https://r1:8081,https://r2", "${env:REGISTRY_PASSWORD}")
    imported, _ = made({**CLICKHOUSE, **registry, "value.converter.schema.registry.url": f"https://{SECRET}@r1"})
    assert imported.connections["registry"]["url"] == "https://r1"
    catalog = {
        "iceberg.catalog.type": "jdbc",
        "iceberg.catalog.uri": f"jdbc:postgresql://db/x?user=me&password={SECRET}&ssl=true",
        "iceberg.catalog.warehouse": "abfss://box@account.dfs.core.windows.net/w",
        "iceberg.catalog.s3.endpoint": f"https://me:{SECRET}@store",
    }
    imported, _ = made({**APACHE, **catalog})
    lake = imported.connections["iceberg"]
    assert lake["uri"] == "jdbc:postgresql://db/x?user=me&password=${env:ICEBERG_CATALOG_URI_PASSWORD}&ssl=true"
    assert lake["warehouse"] == "abfss://box@account.dfs.core.windows.net/w"
    assert lake["properties"] == {"s3.endpoint": "https://${env:ICEBERG_CATALOG_S3_ENDPOINT_USER_INFO}@store"}


@pytest.mark.parametrize(
    ("name", "text", "written"),
    [
        ("header.Authorization", f"Bearer {SECRET}", "${env:ICEBERG_CATALOG_HEADER_AUTHORIZATION}"),
        ("header.Cookie", f"session={SECRET}", "${env:ICEBERG_CATALOG_HEADER_COOKIE}"),
        ("adls.connection-string.acc", f"AccountName=x;AccountKey={SECRET}", None),
        ("adls.account-key", SECRET, None),
        ("adls.sas-token.acc", SECRET, None),
        ("client.credentials-provider.own", SECRET, None),
        ("some.url", f"https://h/x?a=b&sig={SECRET}", "https://h/x?a=b&sig=${env:ICEBERG_CATALOG_SOME_URL_SIG}"),
        ("some.url", f"https://h/x?X-Amz-Signature={SECRET}", None),
        ("some.text", f"AccountKey={SECRET};a=b", "AccountKey=${env:ICEBERG_CATALOG_SOME_TEXT_ACCOUNTKEY};a=b"),
        ("some.url", f"HTTPS://{SECRET}@h/x", "HTTPS://${env:ICEBERG_CATALOG_SOME_URL_USER_INFO}@h/x"),
        *[
            (name, text, text)
            for name, text in {
                "token-refresh-enabled": "false",
                "token-exchange-enabled": "false",
                "token-expires-in-ms": "60000",
                "gcs.oauth2.token-expires-at": "1",
                "client.credentials-provider": "com.acme.Provider",
                "client.refresh-credentials-endpoint": "/v1/credentials",
                "client.refresh-credentials-enabled": "true",
                "header.X-Iceberg-Access-Delegation": "vended-credentials",
                "adls.sas-token-expires-at-ms.acc": "1",
            }.items()
        ],
    ],
)
def test_properties_of_a_catalog_that_are_secrets(name: str, text: str, written: str | None) -> None:
    """And those that only look so, whose values nobody knows by heart."""
    imported, _ = made({**APACHE, f"iceberg.catalog.{name}": text})
    found = imported.connections["lake"]["properties"][name]
    assert found == written if written else "${env:ICEBERG_CATALOG_" in found


def test_tables_with_different_id_columns_are_refused() -> None:
    own = {"iceberg.table.db.orders.id-columns": "order_id,line"}
    with pytest.raises(ConfigurationError, match="different id-columns") as caught:
        made({**TABULAR, **own})
    assert "--table" in caught.value.remedy
    columns = {**COLUMNS, "order_id": "long", "line": "int"}
    imported = build(Configuration("sink", {**TABULAR, **own}), columns, tables=["db.orders"])
    spec = PipelineSpec.model_validate(imported.document)
    assert spec.changes.key is not None
    assert (imported.name, [t.table for t in spec.tables]) == ("sink_db_orders", ["db.orders"])
    assert spec.changes.key.columns == ["order_id", "line"]
    with pytest.raises(ConfigurationError, match=r"no table db\.nope"):
        made(TABULAR, tables=["db.nope"])


def test_columns_that_are_named_without_a_type_are_to_do() -> None:
    parts = ["columns.op", "columns.kind", "columns.at", "columns.id", "unknown_fields"]
    *todo, last = build(Configuration("sink", TABULAR)).todo
    assert [line.split(":")[0] for line in todo] == [f"source.value.{part}" for part in parts]
    assert last.startswith("changes.order_by: arrival")


def test_tabular_sink_of_a_whole_database() -> None:
    options = {
        "connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector",
        "topics.regex": r"shop\..*",
        "transforms": "cdc",
        "transforms.cdc.type": "io.tabular.iceberg.connect.transforms.DebeziumTransform",
        "transforms.cdc.cdc.target.pattern": "Lake.{db}_{table}",
        "iceberg.tables.dynamic-enabled": "true",
        "iceberg.tables.route-field": "_cdc.target",
        "iceberg.tables.cdc-field": "_cdc.op",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.catalog.type": "rest",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    }
    imported = build(Configuration("sink", options))
    spec = PipelineSpec.model_validate(imported.document)
    assert [line.split(":")[0] for line in imported.todo] == ["tables[].table"]
    assert spec.source.value.envelope is not None
    assert (spec.source.transform, spec.route_by, key_is_open(spec)) == (None, None, True)
    for topic in ("shop.public.orders", "shop.PUBLIC.Orders"):
        (member,) = expand("sink", spec, [topic]).members
        (table,) = member.spec.tables
        assert (table.table, table.mode) == ("lake.public_orders", "upsert_delete"), "the sink writes it in lower case"
    known = {"lake.public_orders": KnownTable({"id": "long"}, key=["id"])}
    imported = build(Configuration("sink", options), known=known, topics=["shop.public.orders"])
    assert [line.split(":")[0] for line in imported.todo] == ["tables[].table"], "no topic needs a column for routes"


@pytest.mark.parametrize(
    ("converter", "options", "expected"),
    [
        ("org.apache.kafka.connect.json.JsonConverter", {"schemas.enable": "false"}, ("json", None)),
        ("org.apache.kafka.connect.json.JsonConverter", {}, ("connect_json", None)),
        ("io.confluent.connect.avro.AvroConverter", {"schema.registry.url": "http://r"}, ("avro", "registry")),
        (
            "io.confluent.connect.protobuf.ProtobufConverter",
            {"schema.registry.url": "http://r"},
            ("protobuf", "registry"),
        ),
        (
            "io.confluent.connect.json.JsonSchemaConverter",
            {"schema.registry.url": "http://r:1,http://r:2"},
            ("json", "registry"),
        ),
        ("org.apache.kafka.connect.storage.StringConverter", {}, ("json", None)),
        ("org.apache.kafka.connect.converters.ByteArrayConverter", {}, ("bytes", None)),
    ],
)
def test_converters_become_formats(converter: str, options: dict[str, str], expected: tuple[str, str | None]) -> None:
    plain = {k: v for k, v in CLICKHOUSE.items() if not k.startswith("value.converter")}
    own = {f"value.converter.{k}": v for k, v in options.items()}
    imported, spec = made({**plain, "value.converter": converter, **own})
    assert (spec.source.value.format, spec.source.value.registry) == expected
    # The sinks convert values to their columns' types, whatever a schema says.
    assert spec.source.value.convert == ("exact" if expected[0] in ("string", "bytes") else "best_fit")
    assert imported.connections.get("registry", {}).get("url") == options.get("schema.registry.url")


GLUE = "com.amazonaws.services.schemaregistry.kafkaconnect."


@pytest.mark.parametrize(
    ("converter", "format"),
    [
        ("AWSKafkaAvroConverter", "avro"),
        ("jsonschema.JsonSchemaConverter", "json"),
        ("protobuf.ProtobufSchemaConverter", "protobuf"),
    ],
)
def test_converters_of_aws_glue(converter: str, format: str) -> None:
    options = {
        "value.converter": GLUE + converter,
        "value.converter.region": "eu-west-1",
        "value.converter.endpoint": "https://glue.eu-west-1.amazonaws.com",
        "value.converter.schemaAutoRegistrationEnabled": "true",
        "value.converter.avroRecordType": "GENERIC_RECORD",
    }
    imported, spec = made({**CLICKHOUSE, **options})
    assert (spec.source.value.format, spec.source.value.registry) == (format, "glue")
    assert imported.connections["glue"] == {"kind": "glue_schema_registry", "region": "eu-west-1"}
    assert not [line for line in imported.todo if "converter" in line or "glue" in line]


def test_what_a_converter_of_aws_glue_does_besides() -> None:
    """Beside a key in Confluent's registry."""
    options = {
        "key.converter": "io.confluent.connect.avro.AvroConverter",
        "key.converter.schema.registry.url": "http://r",
        "value.converter": f"{GLUE}AWSKafkaAvroConverter",
        "value.converter.endpoint": "https://vpce-1.glue.eu-west-1.vpce.amazonaws.com/",
        "value.converter.secondaryDeserializer": "io.confluent.kafka.serializers.KafkaAvroDeserializer",
        "value.converter.assumeRoleArn": "arn:aws:iam::1:role/r",
    }
    imported, spec = made({**CLICKHOUSE, **options})
    assert spec.source.value.registry == "glue"
    assert imported.connections["registry"] == {"kind": "schema_registry", "url": "http://r"}
    assert imported.connections["glue"] == {
        "kind": "glue_schema_registry",
        "region": "${env:AWS_REGION}",
        "endpoint_url": "https://vpce-1.glue.eu-west-1.vpce.amazonaws.com",
    }
    todo = " ".join(imported.todo)
    assert "source.value.registry: the sink also reads records in another wire format" in todo
    assert "the connection `glue`: the sink takes a role" in todo


@pytest.mark.parametrize(("form", "value"), [("JSON", "json"), ("", "json"), ("CSV", "string"), ("NONE", "string")])
def test_texts_that_the_sink_has_its_system_read(form: str, value: str) -> None:
    """Its default is JSON."""
    text = {"value.converter": CONVERTERS["key.converter"], **({"insertFormat": form} if form else {})}
    imported, spec = made({**CLICKHOUSE, **text})
    reads = value == "json"
    assert (spec.source.value.format, len(spec.source.value.columns)) == (value, len(COLUMNS) if reads else 1)
    assert any(line.startswith("insertFormat") for line in imported.todo) is (form == "CSV")
    known = {"shop.a": KnownTable({"id": "long", "name": "string"})}
    spec = PipelineSpec.model_validate(
        build(Configuration("s", {**CLICKHOUSE, **text, "topics": "a"}), known=known).document
    )
    columns = {"id": "long", "name": "text"} if reads else {"value": "string"}
    assert (spec.source.value.format, dict(spec.source.value.columns)) == (value, columns)


def test_offsets_at_which_the_pipeline_begins_are_to_be_kept() -> None:
    imported, _ = made(CLICKHOUSE)
    assert "Keep" not in pipeline_file(imported)
    imported.document["source"]["start"] = start({TopicPartition("a", 0): 7})
    text = pipeline_file(imported)
    assert "\n    # Keep this: " in text
    assert text.partition("# Keep this: ")[2].splitlines()[1] == "    start:"
    assert PipelineSpec.model_validate(yaml.safe_load(text)["attributes"]).source.start != "earliest"


def test_three_forms_of_a_file(tmp_path: Path) -> None:
    flat, named, properties = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.properties"
    flat.write_text(json.dumps({"name": "s", **CLICKHOUSE, "tasks.max": 3, "ssl": True}))
    named.write_text(json.dumps({"name": "s", "config": {**CLICKHOUSE, "tasks.max": "3"}}))
    lines = [f"{name}={value}" for name, value in {"name": "s", **CLICKHOUSE, "tasks.max": "3"}.items()]
    properties.write_text("# a comment\n" + "\n".join(lines).replace("topics=a,b,c", "topics = a,\\\n   b,c") + "\n")
    found = [read_configuration(path) for path in (flat, named, properties)]
    assert [(f.name, f.flag("ssl"), f.items("topics"), f.text("tasks.max")) for f in found] == [
        ("s", True, ["a", "b", "c"], "3")
    ] * 3
    properties.write_text("\n".join([*lines, "title=Caf\u00e9\u0085!"]), encoding="latin-1")
    assert read_configuration(properties).options == {**found[2].options, "title": "Caf\u00e9\u0085!"}
    # A comment ends with its line, also with a backslash at its end, and begins no line that goes on.
    properties.write_text("\n".join(["# C:\\kafka\\", *lines, "title=a\\", "#b", "  ! \\"]))
    assert read_configuration(properties).options == {**found[2].options, "title": "a#b"}
    for name, written in (("5", 5), ("a", None)):
        flat.write_text(json.dumps({"name": written, "config": CLICKHOUSE}), encoding="utf-8-sig")
        assert (read_configuration(flat).name, read_configuration(flat).text("topics")) == (name, "a,b,c")
    flat.write_text('{"name": "Caf\u00e9"}', encoding="latin-1")
    with pytest.raises(ConfigurationError, match=r"not UTF-8 at byte 13.*save it as UTF-8"):
        read_configuration(flat)


@pytest.mark.parametrize("text", ["{", "[]", '{"config": 3}', "topics=a", '{"connector.class": "a.b.Unknown"}'])
def test_what_is_no_known_connector_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "connector.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError):
        build(read_configuration(path))


NAMES = [
    ("A b", "a_b"), ("9lives", "p_9lives"), ("--x--", "x"), ("-", "p_"), ("Import", "p_import"), ("type", "p_type"),
    ("x" * 80, "x" * 63), ("9" * 80, "p_" + "9" * 61),
]  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_names(name: str, expected: str) -> None:
    assert pipeline_name(name) == expected
    assert is_name(expected)


MASK = {
    "transforms": "mask,env",
    "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.mask.fields": "card",
    "transforms.env.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.env.static.field": "env",
    "transforms.env.static.value": "prod",
}
FLATTEN = {"transforms": "flat", "transforms.flat.type": "org.apache.kafka.connect.transforms.Flatten$Value"}


@pytest.mark.parametrize("columns", [None, {**COLUMNS, "card": "string"}])
def test_new_fields_pass_transforms_as_in_the_sink(columns: dict[str, str] | None) -> None:
    imported = build(Configuration("sink", {**BIGQUERY, **MASK}), columns)
    source = imported.document["source"]
    assert source["transform"] == (
        "select * except (`card`), case when `card` is not null then '' end as `card`, 'prod' as `env` from records"
    )
    assert (source["value"]["unknown_fields"], "fill_in" in source["value"]["columns"]) == ("add", False)
    assert not any("new fields" in line for line in imported.todo)
    PipelineSpec.model_validate(imported.document)


def test_columns_of_masked_records_may_all_be_left_to_the_records() -> None:
    env = {key: text for key, text in MASK.items() if "mask" not in key} | {"transforms": "env"}
    source = build(Configuration("sink", {**CLICKHOUSE, **env})).document["source"]
    assert source["transform"] == "select *, 'prod' as `env` from records"
    assert "columns" not in source["value"]


def test_new_fields_that_a_transform_cannot_pass_are_reported() -> None:
    imported = build(Configuration("sink", {**BIGQUERY, **FLATTEN}), {**COLUMNS, "s": "struct<x: long>"})
    assert imported.document["source"]["value"]["unknown_fields"] == "ignore"
    assert any("the sink made columns of new fields" in line for line in imported.todo)


def test_what_the_kafka_connection_does_not_have_is_left_to_a_person() -> None:
    options = {"consumer.override.sasl.mechanism": "GSSAPI", "consumer.override.client.rack": "a"}
    imported, _ = made({**TABULAR, **options})
    kafka = imported.connections["kafka"]
    assert ("sasl_mechanism" in kafka, kafka["settings"]) == (False, {"client.rack": "a"})
    assert [line for line in imported.todo if "sasl.mechanism GSSAPI is none that Batchmerge has" in line]


IAM = "software.amazon.msk.auth.iam.IAM"
BY_IAM = {"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": f"{IAM}LoginModule required;"}
BY_TOKEN = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.login.callback.handler.class": f"{IAM}OAuthBearerLoginCallbackHandler",
    "sasl.jaas.config": 'x.OAuthBearerLoginModule required awsRoleArn="arn:aws:iam::1:role/r" awsMaxRetries="7";',
}
BROKERS = "b-1.shop.abc12.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.shop.abc12.c2.kafka.eu-west-1.amazonaws.com:9098"
SERVERLESS = "boot-abc12.c1.kafka-serverless.us-east-2.amazonaws.com:9098"


@pytest.mark.parametrize(
    ("client", "written", "todo"),
    [
        ({**BY_IAM, "bootstrap.servers": BROKERS}, {"aws_region": "eu-west-1"}, ""),
        (
            {**BY_TOKEN, "bootstrap.servers": SERVERLESS},
            {"aws_region": "us-east-2", "aws_role_arn": "arn:aws:iam::1:role/r"},
            "",
        ),
        (
            {**BY_IAM, "sasl.jaas.config": f"{IAM}LoginModule required awsProfileName=kafka awsRoleArn=r;"},
            {"aws_region": "${env:AWS_REGION}", "aws_profile": "kafka"},
            "`aws_region`",
        ),
        (
            {
                "bootstrap.servers": BROKERS,
                **BY_IAM,
                "sasl.jaas.config": f'{IAM}LoginModule required awsRoleArn=r awsRoleExternalId="{SECRET}";',
            },
            {"aws_region": "eu-west-1", "aws_role_arn": "r"},
            "awsRoleExternalId",
        ),
    ],
)
def test_a_client_of_msk_by_iam(client: dict[str, str], written: dict[str, str], todo: str) -> None:
    plain = {name: value for name, value in TABULAR.items() if not name.startswith("consumer.")}
    imported, _ = made({**plain, **{f"consumer.override.{name}": value for name, value in client.items()}})
    kafka = imported.connections["kafka"]
    servers = client.get("bootstrap.servers", "${env:KAFKA_BOOTSTRAP_SERVERS}")
    security = {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
    assert kafka == {"kind": "kafka", "bootstrap_servers": servers, **security, **written}
    KafkaConnection.model_validate(kafka)
    lines = [line for line in imported.todo if "aws" in line.lower()]
    assert len(lines) == bool(todo)
    assert all(todo in line for line in lines)


@pytest.mark.parametrize("option", ["type", "catalog-impl"])
def test_a_catalog_that_batchmerge_does_not_have_is_left_to_a_person(option: str) -> None:
    catalog = {name: value for name, value in TABULAR.items() if name != "iceberg.catalog.type"}
    imported, _ = made({**catalog, f"iceberg.catalog.{option}": "org.projectnessie.NessieCatalog"})
    assert [line for line in imported.todo if "org.projectnessie.NessieCatalog" in line and "rest" in line]


def iceberg_tables(folder: Path, name: str, properties: dict[str, str]) -> Connections:
    """A catalog of this name, in SQLite, with the table `db.events`."""
    (folder / "c.db").touch()
    uri, warehouse = f"sqlite:///{folder}/c.db", f"file://{folder}"
    with SqlCatalog(name, uri=uri, warehouse=warehouse) as catalog:
        catalog.create_namespace("db")
        catalog.create_table("db.events", Schema(NestedField(1, "id", LongType())), properties=properties)
    lake = IcebergConnection(kind="iceberg", type="sql", uri=uri, warehouse=warehouse)
    return Connections({name: lake}, "")


def test_every_use_of_a_sink_has_its_defaults() -> None:
    assert sink_of(Configuration("s", CLICKHOUSE)).configuration.text("insertFormat") == "JSON"


@pytest.mark.parametrize("sink", [TABULAR, APACHE])
@pytest.mark.parametrize("mode", ["merge-on-read", None])
def test_tables_whose_merges_would_rewrite_files(mode: str | None, sink: dict[str, str], tmp_path: Path) -> None:
    properties = {"write.merge.mode": mode} if mode else {}
    configuration = Configuration("s", sink)
    found = sink_of(configuration).known(iceberg_tables(tmp_path, "lake", properties))("db.events")
    assert found is not None
    assert any("write.merge.mode" in line for line in found.todo) is (sink is TABULAR and not mode)


@pytest.mark.parametrize(
    ("option", "name"), [({}, "iceberg"), ({"iceberg.catalog": ""}, "iceberg"), ({"iceberg.catalog": "prod"}, "prod")]
)
def test_tables_of_a_jdbc_catalog_are_found_under_the_catalogs_name(
    option: dict[str, str], name: str, tmp_path: Path
) -> None:
    connections = iceberg_tables(tmp_path, name, {})
    jdbc = {"iceberg.catalog.type": "jdbc", "iceberg.catalog.uri": "jdbc:postgresql://db/x", **option}
    imported, spec = made({**TABULAR, **jdbc})
    assert list(imported.connections) == ["kafka", name]
    assert {table.connection for table in spec.tables} | {spec.intermediate.connection} == {name}
    assert any(line.startswith(f"the connection has to be named {name}") for line in imported.todo)
    configuration = Configuration("s", {**TABULAR, **jdbc})
    found = sink_of(configuration).known(connections)("db.events")
    assert found is not None
    assert found.columns == {"id": "long"}
    assert made(TABULAR)[1].intermediate.connection == "lake"


@pytest.mark.parametrize(
    ("sink", "options", "cron", "interval"),
    [
        (TABULAR, {"iceberg.control.commit.interval-ms": "10000"}, "", "10s"),
        (TABULAR, {"iceberg.control.commit.interval-ms": "500"}, "", "1s"),
        (APACHE, {}, "*/5 * * * *", ""),
        (APACHE, {"iceberg.control.commit.interval-ms": "60000"}, "*/1 * * * *", ""),
        (APACHE, {"iceberg.control.commit.interval-ms": "7200000"}, "0 * * * *", ""),
        (CLICKHOUSE, {}, "*/1 * * * *", ""),
        (CLICKHOUSE, {"bufferFlushTime": "5000"}, "", "5s"),
        (BIGQUERY, {}, "*/1 * * * *", ""),
        (BIGQUERY, {"mergeIntervalMs": "1000"}, "*/1 * * * *", ""),
        (BIGQUERY, {"upsertEnabled": "false", "deleteEnabled": "false"}, "*/1 * * * *", ""),
        (BIGQUERY, {"upsertEnabled": "false", "deleteEnabled": "false", "enableBatchLoad": "shop.orders"},
         "*/2 * * * *", ""),
    ],
)  # fmt: skip
def test_runs_start_as_often_as_the_sink_wrote(
    sink: dict[str, str], options: dict[str, str], cron: str, interval: str
) -> None:
    imported, spec = made({**sink, **options})
    assert (imported.document.get("cron", ""), spec.interval or "") == (cron, interval)
    asked = [line for line in imported.todo if line.startswith(("cron: ", "interval: "))]
    assert len(asked) == bool(interval or (sink is CLICKHOUSE and not options)), "of what costs more, or comes later"


def test_bigquery_merges_at_every_run_where_the_sink_merged_as_often() -> None:
    table = specs.entry(made({**BIGQUERY, "mergeIntervalMs": "60000"})[1], BigQueryTable)
    assert table.merge_interval_seconds == 0
    table = specs.entry(made({**BIGQUERY, "mergeIntervalMs": "-1"})[1], BigQueryTable)
    assert (table.merge_interval_seconds, table.merge_records_threshold) == (None, 500)


@pytest.mark.parametrize(("converter", "kind"), [("Long", "long"), ("Short", "int"), ("Double", "double")])
def test_keys_of_one_number_are_read_as_kafkas_serializers_write_them(converter: str, kind: str) -> None:
    named = {"key.converter": f"org.apache.kafka.connect.converters.{converter}Converter"}
    imported = build(Configuration("sink", {**BIGQUERY, **named}), COLUMNS)
    assert imported.document["source"]["key"] == {"format": "bytes", "columns": {"key": kind}}
    assert not any(converter in line for line in imported.todo)
