"""Debezium Server's Iceberg consumer reads databases, not Kafka, so it cannot be imported; what its options are here.

Source: `debezium-server-iceberg` (`peer-features`, section 21). Names without the prefix `debezium.sink.iceberg.`.
"""

from __future__ import annotations

from jobs.connect_import.options import Options, equivalent, none, not_needed

PREFIX = "debezium.sink.iceberg."
OPTIONS: Options = {
    "upsert": equivalent("mode upsert or upsert_delete"),
    "upsert-keep-deletes": equivalent("mode upsert (deletes are ignored)"),
    "upsert-use-dv": equivalent("tables[].write: merge_on_read"),
    "upsert-dedup-column": equivalent("changes.order_by"),
    "upsert-op-field": equivalent("changes.op.field"),
    "nested-as-variant": none("declare a struct, or string"),
    "format-version": equivalent("tables[].properties.format-version; 3 cannot be committed yet"),
    "create-identifier-fields": not_needed("a keyed table is created with its identifier fields"),
    "table-mapper": equivalent("tables[].route.topics"),
    "table-namespace": equivalent("tables[].table: namespace.table"),
    "table-prefix": equivalent("tables[].table"),
    "destination-regexp": equivalent("tables[].route.topics"),
    "destination-regexp-replace": equivalent("tables[].route.topics"),
    "destination-uppercase-table-names": equivalent("tables[].table"),
    "destination-lowercase-table-names": equivalent("tables[].table"),
    "preserve-required-property": equivalent("`not null` in `source.value.columns`"),
    "partition-by": equivalent("tables[].partition_by"),
    "allow-field-addition": equivalent("tables[].evolve.add_columns"),
    "excluded-columns": equivalent("columns that are not declared are left out"),
    "batch-size-wait": equivalent("batch.max_records and cron"),
    "concurrent-uploads": not_needed("each table is a step of its own"),
    "openlineage-enabled": none("Dagster shows the lineage"),
    "offset.storage": not_needed("progress is kept with the tables"),
    "schema.history.internal": not_needed("columns are declared; there is no history of schemas"),
}
