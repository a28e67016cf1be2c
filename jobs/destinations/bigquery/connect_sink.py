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
from jobs.connect_import.going_on import GoingOn
from jobs.connect_import.known import KnownTable
from jobs.connect_import.placing import Placing, placing
from jobs.connect_import.sink import Sink
from jobs.destinations.bigquery.connect_options import OPTIONS
from jobs.spec.transform import KEY
from resources.connections import BigQueryConnection, Connections

_DAY_MS, _MINUTE_MS = 86_400_000, 60_000


class BigQuerySink(Sink):
    """The BigQuery sinks, Confluent's and Aiven's."""

    classes = ("com.wepay.kafka.connect.bigquery.BigQuerySinkConnector",)
    options = OPTIONS
    tombstones_delete = True
    times_in = "seconds (its Storage Write API microseconds)"

    def place(self, named: list[str]) -> Placing:
        """The tables that topics go to."""
        del named
        name = "{name}" if self._sanitizes else "{topic}"
        template = f"{self.configuration.name_part('defaultDataset')}.{name}"
        return placing(self.configuration, template, self._table_of, self._places)

    def tables(self, placed: Placing, is_known: bool) -> tuple[list[dict[str, Any]], list[str]]:
        """The `tables` part: one for each table that topics go to."""
        del is_known
        todo = [self._waiting_files()] if self.configuration.items("enableBatchLoad") else []
        return [{**self._table(table), **route} for table, route in placed.tables.items()], todo

    def document(self, placed: Placing, going_on: GoingOn) -> dict[str, Any]:
        del placed, going_on
        found: dict[str, Any] = {**connect.schedule(max(_MINUTE_MS, self._flush_ms))}
        if (retries := self.configuration.number("max.retries")) is not None:
            found["retry"] = {"max_retries": retries}
        return found

    def connections(self) -> dict[str, dict[str, Any]]:
        found: dict[str, Any] = {"kind": "bigquery", "project": self.configuration.text("project")}
        source = self.configuration.text("keySource", "FILE").upper()
        if source in ("JSON", "WIF_JSON"):
            found["credentials_json"] = connect.environment("bigquery.credentials.json")
        elif source == "FILE" and self.configuration.text("keyfile"):
            found["credentials_file"] = connect.environment("bigquery.credentials.file")
        return {"bigquery": found}

    def changes(
        self, key: Mapping[str, str], chain: Chain, placed: Placing
    ) -> tuple[dict[str, Any], dict[str, str] | None]:
        if self._mode == "append":
            return {}, None
        if chain.key:
            return {"changes": {"key": {"columns": chain.key, "source": "value"}, "order_by": "arrival"}}, None
        whole, columns = self.key_column(), dict(key)
        if not columns and not connect.has_fields(self.configuration, "key"):
            columns = {whole or "key": connect.one_value_type(self.configuration, "key")}
        several = len(self.configuration.items("topics")) != 1 and not placed.each
        order = {"order_by": "arrival"} if several else {}
        if not columns:
            return {"changes": order} if order else {}, {}
        names = [whole] if whole and whole not in columns else list(columns)
        return {"changes": {"key": {"columns": names}, **order}}, columns

    def key_column(self) -> str:
        return self.configuration.text("kafkaKeyFieldName")

    def record_column(self) -> str:
        return self.configuration.text("kafkaDataFieldName")

    def fill_key(self, key: Mapping[str, str], chain: Chain) -> list[str]:
        if not self._fills_key:
            return []
        whole = self.key_column()
        if not key:
            return [f"{whole}, the column of the record's key, gets no values: declare the key's parts (--key-columns)"]
        chain.record_key = dict(key)
        chain.make(whole, f"{KEY}.{name(whole)}" if whole in key else KEY)
        return []

    def known(self, connections: Connections) -> Callable[[str], KnownTable | None]:
        from jobs.destinations.bigquery import connect_tables
        from resources.bigquery import BigQuery

        return partial(connect_tables.known, BigQuery("bigquery", connections.get("bigquery", BigQueryConnection)))

    def _waiting_files(self) -> str:
        """Offsets are committed when records are in the bucket, from which a timer of the connector loads them."""
        folder = f"{self.configuration.text('gcsBucketName')}/{self.configuration.text('gcsFolderName')}".rstrip("/")
        return (
            f"enableBatchLoad: the connector's offsets are beyond records that wait in gs://{folder}, and without it "
            "no table gets them: pause it, wait until its files there are gone, stop it, and import then"
        )

    @property
    def _mode(self) -> str:
        upsert, delete = self.configuration.flag("upsertEnabled"), self.configuration.flag("deleteEnabled")
        modes = {(True, False): "upsert", (True, True): "upsert_delete", (False, True): "delete"}
        return modes.get((upsert, delete), "append")

    @property
    def _fills_key(self) -> bool:
        """Whether a record's key of several fields is a column of a table with another key."""
        appends = self._mode == "append"
        return appends and bool(self.key_column()) and connect.has_fields(self.configuration, "key")

    def _table(self, table: str) -> dict[str, Any]:
        found: dict[str, Any] = {
            "kind": "bigquery",
            "connection": "bigquery",
            "table": table,
            "mode": self._mode,
            "create": self.configuration.flag("autoCreateTables", True),
            "evolve": {
                "add_columns": self.configuration.flag("allowNewBigQueryFields"),
                "widen_types": False,
                "relax_required": self.configuration.flag("allowBigQueryRequiredFieldRelaxation"),
            },
        }
        if self.configuration.flag("sanitizeFieldNames"):
            found["sanitize_names"] = True
        metadata = ["topic", "partition", "offset"] if found["mode"] == "delete" else []
        if data := self.record_column():
            metadata.append(f"record as {data}")
        key = self.key_column()
        if key and found["mode"] == "append" and not self._fills_key:
            metadata.append(f"key as {key}")
        if metadata:
            found["metadata_columns"] = metadata
        if suffix := self.configuration.text("intermediateTableSuffix"):
            found["intermediate_suffix"] = suffix
        if found["mode"] != "append":
            found |= self._merging()
        return {**found, **self._layout()}

    @property
    def _flush_ms(self) -> int:
        """After how long the sink hands records on to BigQuery; 0: at once."""
        if self.configuration.items("enableBatchLoad"):
            return 1000 * (self.configuration.number("batchLoadIntervalSec") or 120)
        batches = self.configuration.flag("enableBatchMode")
        return 1000 * (self.configuration.number("commitInterval") or 60) if batches else 0

    def _merging(self) -> dict[str, Any]:
        interval = self.configuration.number("mergeIntervalMs")
        interval = _MINUTE_MS if interval is None else interval
        threshold = self.configuration.number("mergeRecordsThreshold")
        # A run starts every minute, so that it merges after a shorter time as well.
        seconds = interval // 1000 if interval > _MINUTE_MS else 0
        found: dict[str, Any] = {"merge_interval_seconds": seconds if interval > 0 else None}
        return {**found, **({"merge_records_threshold": threshold} if threshold and threshold > 0 else {})}

    def _layout(self) -> dict[str, Any]:
        kind = self.configuration.text("timePartitioningType", "DAY").upper()
        if kind == "NONE":
            return {}
        found: dict[str, Any] = {"time_partitioning": kind}
        column = self.configuration.text("timestampPartitionFieldName")
        if column:
            found["partition_column"] = column
        else:
            of_record = self.configuration.flag("bigQueryMessageTimePartitioning")
            found["partition_time"] = "record" if of_record else "ingestion"
        if expiration := self.configuration.number("partitionExpirationMs"):
            found["partition_expiration_days"] = -(-expiration // _DAY_MS)  # not sooner than the sink's
        # The sink clusters only tables that are partitioned by a column.
        if column and (columns := self.configuration.items("clusteringPartitionFieldNames")):
            found["cluster_by"] = columns
        return found

    @property
    def _places(self) -> dict[str, str]:
        """Tables by topic, as the options name them."""
        return self.configuration.pairs("topic2TableMap", ":")

    def _table_of(self, topic: str) -> str:
        """As the sink's `TableNameUtils.getDataSetAndTableName`: a topic `dataset:table` names both; beside
        `topic2TableMap`, `sanitizeTopics` has no effect."""
        dataset, table, places = self.configuration.name_part("defaultDataset"), topic, self._places
        if topic in places:
            return f"{dataset}.{places[topic]}"
        if ":" in topic and not places:
            dataset, _, table = topic.partition(":")
        return f"{dataset}.{_sanitized(table) if self._sanitizes else table}"

    @property
    def _sanitizes(self) -> bool:
        """Whether tables have sanitized names. Topics with dots had no table otherwise."""
        dotted = any("." in topic for topic in self.configuration.items("topics"))
        dotted = dotted or "\\." in self.configuration.text("topics.regex")
        return dotted or (self.configuration.flag("sanitizeTopics") and not self._places)


def _sanitized(topic: str) -> str:
    """The table's name as the sink's `sanitizeTopics` makes it."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"_{name}" if name[:1].isdigit() else name
