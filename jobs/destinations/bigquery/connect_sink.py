"""The BigQuery sink (`com.wepay.kafka.connect.bigquery.BigQuerySinkConnector`), Confluent's and Aiven's.

Sources: their `BigQuerySinkConfig` and documentation (`peer-features`, section 21).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jobs.connect_import import connect
from jobs.connect_import.chain import Chain, name
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.going_on import GoingOn
from jobs.connect_import.known import KnownTable
from jobs.connect_import.placing import Placing, placing
from jobs.connect_import.sink import Sink
from jobs.destinations.bigquery.connect_options import OPTIONS
from jobs.spec.transform import KEY
from resources.connections import BigQueryConnection, Connections

_DAY_MS = 86_400_000


class BigQuerySink(Sink):
    """The BigQuery sinks, Confluent's and Aiven's."""

    classes = ("com.wepay.kafka.connect.bigquery.BigQuerySinkConnector",)
    options = OPTIONS
    tombstones_delete = True
    times_in = "seconds (its Storage Write API microseconds)"

    def place(self, configuration: Configuration, named: list[str]) -> Placing:
        """The tables that topics go to."""
        del named
        places = dict(part.split(":", 1) for part in configuration.items("topic2TableMap") if ":" in part)
        name = "{name}" if _sanitizes(configuration, places) else "{topic}"
        template = f"{configuration.name_part('defaultDataset')}.{name}"
        return placing(configuration, template, lambda t: _table_of(configuration, t, places), places)

    def tables(
        self, configuration: Configuration, placed: Placing, is_known: bool
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """The `tables` part: one for each table that topics go to."""
        del is_known
        todo = [_waiting_files(configuration)] if configuration.items("enableBatchLoad") else []
        return [{**_table(configuration, table), **route} for table, route in placed.tables.items()], todo

    def document(self, configuration: Configuration, placed: Placing, going_on: GoingOn) -> dict[str, Any]:
        del placed, going_on
        found: dict[str, Any] = {}
        if (retries := configuration.number("max.retries")) is not None:
            found["retry"] = {"max_retries": retries}
        return found

    def connections(self, configuration: Configuration) -> dict[str, dict[str, Any]]:
        found: dict[str, Any] = {"kind": "bigquery", "project": configuration.text("project")}
        source = configuration.text("keySource", "FILE").upper()
        if source == "JSON":
            found["credentials_json"] = connect.environment("bigquery.credentials.json")
        elif source == "FILE" and configuration.text("keyfile"):
            found["credentials_file"] = connect.environment("bigquery.credentials.file")
        return {"bigquery": found}

    def changes(
        self, configuration: Configuration, key: Mapping[str, str], chain: Chain, placed: Placing
    ) -> tuple[dict[str, Any], dict[str, str] | None]:
        if mode(configuration) == "append":
            return {}, None
        if chain.key:
            return {"changes": {"key": {"columns": chain.key, "source": "value"}, "order_by": "arrival"}}, None
        whole, columns = self.key_column(configuration), dict(key)
        if not columns and not connect.has_fields(configuration, "key"):
            columns = {whole or "key": "string"}
        several = len(configuration.items("topics")) != 1 and not placed.each
        order = {"order_by": "arrival"} if several else {}
        if not columns:
            return {"changes": order} if order else {}, {}
        names = [whole] if whole and whole not in columns else list(columns)
        return {"changes": {"key": {"columns": names}, **order}}, columns

    def key_column(self, configuration: Configuration) -> str:
        return configuration.text("kafkaKeyFieldName")

    def record_column(self, configuration: Configuration) -> str:
        return configuration.text("kafkaDataFieldName")

    def fill_key(self, configuration: Configuration, key: Mapping[str, str], chain: Chain) -> list[str]:
        if not _fills_key(configuration):
            return []
        whole = self.key_column(configuration)
        if not key:
            return [f"{whole}, the column of the record's key, gets no values: declare the key's parts (--key-columns)"]
        chain.record_key = dict(key)
        chain.make(whole, f"{KEY}.{name(whole)}" if whole in key else KEY)
        return []

    def known(self, configuration: Configuration, connections: Connections) -> Callable[[str], KnownTable | None]:
        from jobs.destinations.bigquery import connect_tables
        from resources.bigquery import BigQuery

        del configuration
        return partial(connect_tables.known, BigQuery("bigquery", connections.get("bigquery", BigQueryConnection)))


def _waiting_files(configuration: Configuration) -> str:
    """Offsets are committed when records are in the bucket, from which a timer of the connector loads them later."""
    folder = f"{configuration.text('gcsBucketName')}/{configuration.text('gcsFolderName')}".rstrip("/")
    return (f"enableBatchLoad: the connector's offsets are beyond records that wait in gs://{folder}, and without it "
            "no table gets them: pause it, wait until its files there are gone, stop it, and import then")  # fmt: skip


def mode(configuration: Configuration) -> str:
    upsert, delete = configuration.flag("upsertEnabled"), configuration.flag("deleteEnabled")
    return {(False, False): "append", (True, False): "upsert", (True, True): "upsert_delete", (False, True): "delete"}[
        upsert, delete
    ]


def _fills_key(configuration: Configuration) -> bool:
    """Whether a record's key of several fields is a column of a table with another key."""
    named = bool(configuration.text("kafkaKeyFieldName"))
    return named and mode(configuration) == "append" and connect.has_fields(configuration, "key")


def _table(configuration: Configuration, table: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": "bigquery",
        "connection": "bigquery",
        "table": table,
        "mode": mode(configuration),
        "create": configuration.flag("autoCreateTables", True),
        "evolve": {
            "add_columns": configuration.flag("allowNewBigQueryFields"),
            "widen_types": False,
            "relax_required": configuration.flag("allowBigQueryRequiredFieldRelaxation"),
        },
    }
    if configuration.flag("sanitizeFieldNames"):
        found["sanitize_names"] = True
    metadata = ["topic", "partition", "offset"] if found["mode"] == "delete" else []
    if data := configuration.text("kafkaDataFieldName"):
        metadata.append(f"record as {data}")
    key = configuration.text("kafkaKeyFieldName")
    if key and found["mode"] == "append" and not _fills_key(configuration):
        metadata.append(f"key as {key}")
    if metadata:
        found["metadata_columns"] = metadata
    if suffix := configuration.text("intermediateTableSuffix"):
        found["intermediate_suffix"] = suffix
    if found["mode"] != "append":
        found |= _merging(configuration)
    return {**found, **_layout(configuration)}


def _merging(configuration: Configuration) -> dict[str, Any]:
    interval, threshold = configuration.number("mergeIntervalMs"), configuration.number("mergeRecordsThreshold")
    interval = 60_000 if interval is None else interval
    found: dict[str, Any] = {"merge_interval_seconds": max(1, interval // 1000) if interval > 0 else None}
    return {**found, **({"merge_records_threshold": threshold} if threshold and threshold > 0 else {})}


def _layout(configuration: Configuration) -> dict[str, Any]:
    kind = configuration.text("timePartitioningType", "DAY").upper()
    if kind == "NONE":
        return {}
    found: dict[str, Any] = {"time_partitioning": kind}
    column = configuration.text("timestampPartitionFieldName")
    if column:
        found["partition_column"] = column
    else:
        found["partition_time"] = "record" if configuration.flag("bigQueryMessageTimePartitioning") else "ingestion"
    if expiration := configuration.number("partitionExpirationMs"):
        found["partition_expiration_days"] = -(-expiration // _DAY_MS)  # not sooner than the sink's
    # The sink clusters only tables that are partitioned by a column.
    if column and (columns := configuration.items("clusteringPartitionFieldNames")):
        found["cluster_by"] = columns
    return found


def _table_of(configuration: Configuration, topic: str, places: Mapping[str, str]) -> str:
    """As the sink's `TableNameUtils.getDataSetAndTableName`: a topic `dataset:table` names both; beside
    `topic2TableMap`, `sanitizeTopics` has no effect."""
    dataset, table = configuration.name_part("defaultDataset"), topic
    if topic in places:
        return f"{dataset}.{places[topic]}"
    if ":" in topic and not places:
        dataset, _, table = topic.partition(":")
    return f"{dataset}.{_sanitized(table) if _sanitizes(configuration, places) else table}"


def _sanitizes(configuration: Configuration, places: Mapping[str, str]) -> bool:
    """Whether tables have sanitized names. Topics with dots had no table otherwise."""
    dotted = any("." in topic for topic in configuration.items("topics")) or "\\." in configuration.text("topics.regex")
    return dotted or (configuration.flag("sanitizeTopics") and not places)


def _sanitized(topic: str) -> str:
    """The table's name as the sink's `sanitizeTopics` makes it."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"_{name}" if name[:1].isdigit() else name
