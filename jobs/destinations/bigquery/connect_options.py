"""Options of the BigQuery sinks, Confluent's and Aiven's, and what becomes of each."""

from __future__ import annotations

from jobs.connect_import.options import Options, equivalent, none, not_needed

_LOADS = "always load jobs"
_BUCKET = "always load jobs, without a bucket; files that wait in the sink's are a To do"
CONFLUENT: Options = {
    "project": equivalent("the BigQuery connection's project"),
    "defaultDataset": equivalent("tables[].table: dataset.table"),
    "keyfile": equivalent("the BigQuery connection's credentials_file or credentials_json"),
    "keySource": equivalent("the BigQuery connection's credentials_file or credentials_json"),
    "sanitizeTopics": equivalent("tables[].table: the names are worked out, {name} is a sanitized one"),
    "sanitizeFieldNames": equivalent("tables[].sanitize_names"),
    "topic2TableMap": equivalent("tables[].route.topics, or overrides"),
    "schemaRetriever": none("columns are declared in `source`, or come from the records"),
    "kafkaKeyFieldName": equivalent("source.key.column; of text: tables[].metadata_columns"),
    "kafkaDataFieldName": equivalent("tables[].metadata_columns: record as …"),
    "avroDataCacheSize": not_needed("schemas are kept for a run"),
    "convertDoubleSpecialValues": not_needed("infinity and NaN are values of FLOAT64; JSON has none"),
    "convertDebeziumTimestampToInteger": equivalent("declare the column as long or timestamp"),
    "allBQFieldsNullable": equivalent("columns without `not null`"),
    "autoCreateTables": equivalent("tables[].create, with columns of the records"),
    "allowNewBigQueryFields": equivalent("source.value.unknown_fields: add, and tables[].evolve.add_columns"),
    "allowBigQueryRequiredFieldRelaxation": equivalent("tables[].evolve.relax_required"),
    "allowSchemaUnionization": not_needed("columns that are not declared any more stay in the table"),
    "upsertEnabled": equivalent("mode upsert or upsert_delete"),
    "deleteEnabled": equivalent("mode upsert_delete or delete"),
    "intermediateTableSuffix": equivalent("tables[].intermediate_suffix"),
    "mergeIntervalMs": equivalent("tables[].merge_interval_seconds; a run starts every minute"),
    "mergeRecordsThreshold": equivalent("tables[].merge_records_threshold"),
    "threadPoolSize": not_needed("load jobs run in BigQuery"),
    "queueSize": not_needed("batch.max_records bounds memory"),
    "bigQueryRetry": equivalent("the BigQuery connection's retry_seconds"),
    "bigQueryRetryWait": equivalent("the BigQuery connection's retry_seconds"),
    "enableRetries": equivalent("retry"),
    "max.retries": equivalent("retry.max_retries"),
    "bigQueryMessageTimePartitioning": equivalent("tables[].partition_time: record"),
    "bigQueryPartitionDecorator": equivalent("tables[].partition_time"),
    "timestampPartitionFieldName": equivalent("tables[].partition_column"),
    "timePartitioningType": equivalent("tables[].time_partitioning"),
    "partitionExpirationMs": equivalent("tables[].partition_expiration_days"),
    "clusteringPartitionFieldNames": equivalent("tables[].cluster_by"),
    "enableBatchLoad": not_needed(_BUCKET),
    "batchLoadIntervalSec": equivalent("cron"),
    "gcsBucketName": not_needed(_BUCKET),
    "gcsFolderName": not_needed(_BUCKET),
    "autoCreateBucket": not_needed(_BUCKET),
    "runtimeProvider": not_needed("jobs carry labels"),
}
AIVEN: Options = {
    "useStorageWriteApi": not_needed(_LOADS),
    "enableBatchMode": not_needed(_LOADS),
    "commitInterval": equivalent("cron, with enableBatchMode"),
    "useCredentialsProjectId": equivalent("the BigQuery connection's billing_project: name that of the credentials"),
    "trackPutAttempts": not_needed("a batch is landed and merged once"),
    "mediateConcurrentSchemaUpdates": not_needed("one run at a time changes a table"),
    "concurrentSchemaUpdateRetryWaitMs": not_needed("one run at a time changes a table"),
    "concurrentSchemaUpdateMaxRetries": not_needed("one run at a time changes a table"),
    "preserveKafkaTopicPartitionOffset": not_needed("coordinates are always Kafka's own"),
    "decimalHandlingMode": equivalent("declare decimal(p,s), double or string; tables[].column_types"),
    "variableScaleDecimalHandlingMode": equivalent("declare decimal(p,s), double or string; tables[].column_types"),
    "convertDebeziumVariableScaleDecimal": equivalent("declare decimal(p,s), double or string"),
    "ignoreUnknownFields": equivalent("source.value.unknown_fields: ignore"),
}
OPTIONS: Options = {**CONFLUENT, **AIVEN}
