"""Options of the Iceberg sinks, Tabular's and Apache's, and what the import makes of each."""

from __future__ import annotations

from jobs.connect_import.options import Options, equivalent, not_needed

_ALL_BRANCH = "tables[].branch"
OPTIONS: Options = {
    "iceberg.tables": equivalent("tables[].table"),
    "iceberg.tables.dynamic-enabled": equivalent("route_by and new_tables; or source.for_each: topic"),
    "iceberg.tables.route-field": equivalent("tables[].route.field, or route_by"),
    "iceberg.tables.default-commit-branch": equivalent(_ALL_BRANCH),
    "iceberg.tables.default-id-columns": equivalent("changes.key.columns; Apache's only appends and passes it over"),
    "iceberg.tables.default-partition-by": equivalent("tables[].partition_by"),
    "iceberg.tables.cdc-field": equivalent(
        "`_op` in source.transform, and mode upsert_delete; Apache's only appends and passes it over"
    ),
    "iceberg.tables.upsert-mode-enabled": equivalent(
        "mode upsert; position deletes (where the table has write.merge.mode), or a MERGE, for "
        "equality deletes; Apache's only appends and passes it over"
    ),
    "iceberg.tables.auto-create-enabled": equivalent("tables[].create, with columns of the records"),
    "iceberg.tables.evolve-schema-enabled": equivalent("source.value.unknown_fields: add, and tables[].evolve"),
    "iceberg.tables.schema-force-optional": equivalent("force_optional"),
    "iceberg.tables.schema-case-insensitive": equivalent("ignore_case, with plain JSON"),
    "iceberg.tables.auto-create-props.*": equivalent("tables[].properties"),
    "iceberg.tables.write-props.*": equivalent("tables[].properties, of new tables; an existing one has its own"),
    "iceberg.table.*.commit-branch": equivalent(_ALL_BRANCH),
    "iceberg.table.*.id-columns": equivalent("changes.key.columns; Apache's only appends and passes it over"),
    "iceberg.table.*.partition-by": equivalent("tables[].partition_by"),
    "iceberg.table.*.route-regex": equivalent("tables[].route.matches"),
    "iceberg.control.topic": not_needed("the pipeline has a control topic of its own, `control.topic`"),
    "iceberg.control.group-id": not_needed("progress is kept with the tables"),
    "iceberg.control.group-id-prefix": not_needed("progress is kept with the tables"),
    "iceberg.control.commit.interval-ms": equivalent("cron, or interval where it is under a minute"),
    "iceberg.control.commit.timeout-ms": not_needed("tables commit on their own; a step's limit is time_limit_seconds"),
    "iceberg.control.commit.threads": not_needed("each table is a step of its own"),
    "iceberg.control.commit.max-consecutive-failures": equivalent("retry.max_retries"),
    "iceberg.connect.group-id": equivalent("the group whose offsets are taken over"),
    "iceberg.coordinator.transactional.prefix": not_needed("every role has a transactional id of its own"),
    "iceberg.coordinator-executor-keep-alive-timeout-ms": not_needed("there is no coordinator"),
    "iceberg.catalog": equivalent("the connection's name: of a JDBC catalog the same, else `lake`"),
    "iceberg.catalog.*": equivalent("the Iceberg connection"),
    "iceberg.hadoop-conf-dir": equivalent("HADOOP_CONF_DIR of the Spark server"),
    "iceberg.hadoop.*": equivalent("spark.hadoop.* in the Spark connection's settings"),
    "iceberg.kafka.*": equivalent("the Kafka connection"),
}
