"""Every option of the connectors is mapped or named: the names are from their own sources (2024 to 2026)."""

from __future__ import annotations

import pytest

from jobs.connect_import import connect
from jobs.connect_import.options import Options, OptionStatus, find
from jobs.destinations.bigquery import connect_options as bigquery
from jobs.destinations.clickhouse import connect_options as clickhouse
from jobs.destinations.iceberg import connect_options as iceberg

ICEBERG = """
iceberg.tables iceberg.tables.dynamic-enabled iceberg.tables.route-field iceberg.tables.default-commit-branch
iceberg.tables.default-id-columns iceberg.tables.default-partition-by iceberg.tables.cdc-field
iceberg.tables.upsert-mode-enabled iceberg.tables.auto-create-enabled iceberg.tables.evolve-schema-enabled
iceberg.tables.schema-force-optional iceberg.tables.schema-case-insensitive
iceberg.tables.auto-create-props.write.format.default iceberg.tables.write-props.write.target-file-size-bytes
iceberg.table.db.events.commit-branch iceberg.table.db.events.id-columns iceberg.table.db.events.partition-by
iceberg.table.db.events.route-regex iceberg.control.topic iceberg.control.group-id
iceberg.control.commit.interval-ms iceberg.control.commit.timeout-ms iceberg.control.commit.threads
iceberg.connect.group-id iceberg.catalog iceberg.catalog.uri iceberg.hadoop-conf-dir iceberg.hadoop.fs.s3a.endpoint
iceberg.kafka.bootstrap.servers iceberg.control.group-id-prefix iceberg.control.commit.max-consecutive-failures
iceberg.coordinator.transactional.prefix iceberg.coordinator-executor-keep-alive-timeout-ms
"""
CLICKHOUSE = """
hostname port database username password ssl jdbcConnectionProperties timeoutSeconds retryCount tableRefreshInterval
exactlyOnce suppressTableExistenceException clickhouseSettings topic2TableMap errors.tolerance customInsertFormat
insertFormat proxyType proxyHost proxyPort zkPath zkDatabase enableDbTopicSplit dbTopicSplitChar keeperOnCluster
bypassRowBinary dateTimeFormats clientVersion tolerateStateMismatch bypassSchemaValidation bypassFieldCleanup
debeziumCDCEnabled ignorePartitionsWhenBatching bufferCount bufferFlushTime clickhouseClientInsertTimeoutMs
reportInsertedOffsets ssl_socket_sni auto.evolve auto.evolve.ddl.refresh.retries auto.evolve.struct.to.json clusterName
"""
BIGQUERY = """
topics topics.regex project defaultDataset keyfile keySource sanitizeTopics sanitizeFieldNames topic2TableMap
schemaRetriever kafkaKeyFieldName kafkaDataFieldName avroDataCacheSize convertDoubleSpecialValues
convertDebeziumTimestampToInteger allBQFieldsNullable autoCreateTables allowNewBigQueryFields
allowBigQueryRequiredFieldRelaxation allowSchemaUnionization upsertEnabled deleteEnabled intermediateTableSuffix
mergeIntervalMs mergeRecordsThreshold threadPoolSize queueSize bigQueryRetry bigQueryRetryWait enableRetries max.retries
bigQueryMessageTimePartitioning bigQueryPartitionDecorator timestampPartitionFieldName timePartitioningType
partitionExpirationMs clusteringPartitionFieldNames enableBatchLoad batchLoadIntervalSec gcsBucketName gcsFolderName
autoCreateBucket runtimeProvider
useStorageWriteApi enableBatchMode commitInterval useCredentialsProjectId trackPutAttempts
mediateConcurrentSchemaUpdates concurrentSchemaUpdateRetryWaitMs concurrentSchemaUpdateMaxRetries
preserveKafkaTopicPartitionOffset decimalHandlingMode variableScaleDecimalHandlingMode
convertDebeziumVariableScaleDecimal ignoreUnknownFields
"""
CONNECT = """
name connector.class tasks.max key.converter value.converter value.converter.schemas.enable header.converter transforms
transforms.unwrap.type predicates predicates.p.pattern config.action.reload errors.tolerance
errors.deadletterqueue.topic.name errors.deadletterqueue.topic.replication.factor
errors.deadletterqueue.context.headers.enable errors.log.enable errors.log.include.messages errors.retry.timeout
errors.retry.delay.max.ms consumer.override.auto.offset.reset producer.override.linger.ms admin.override.retries
"""
TABLES: list[tuple[str, Options]] = [
    (ICEBERG, iceberg.OPTIONS),
    (CLICKHOUSE, clickhouse.OPTIONS),
    (BIGQUERY, bigquery.OPTIONS),
    (CONNECT, {}),
]


@pytest.mark.parametrize(("name", "options"), [(name, options) for names, options in TABLES for name in names.split()])
def test_option_is_mapped_or_named(name: str, options: Options) -> None:
    option = find(name, options, connect.OPTIONS)
    assert option is not None, name
    assert option.text


def test_every_status_occurs_and_unknown_options_are_not_guessed() -> None:
    every = {**iceberg.OPTIONS, **clickhouse.OPTIONS, **bigquery.OPTIONS, **connect.OPTIONS}
    assert {option.status for option in every.values()} == set(OptionStatus)
    assert find("iceberg.tabels", iceberg.OPTIONS, connect.OPTIONS) is None
