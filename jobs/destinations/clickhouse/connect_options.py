"""Options of the ClickHouse sink 1.5, and what the import makes of each."""

from __future__ import annotations

from jobs.connect_import.options import Options, equivalent, none, not_needed

OPTIONS: Options = {
    "hostname": equivalent("the ClickHouse connection's endpoints"),
    "port": equivalent("the ClickHouse connection's endpoints"),
    "database": equivalent("tables[].table, and the connection's database"),
    "username": equivalent("the ClickHouse connection"),
    "password": equivalent("the ClickHouse connection, from the environment"),
    "ssl": equivalent("the ClickHouse connection's secure"),
    "ssl_socket_sni": none("the endpoint's own name is sent"),
    "jdbcConnectionProperties": none("name in the ClickHouse connection what is still needed (timeouts, settings)"),
    "timeoutSeconds": equivalent("the ClickHouse connection's timeout_seconds"),
    "clickhouseClientInsertTimeoutMs": equivalent("the ClickHouse connection's statement_timeout_seconds"),
    "retryCount": equivalent("retry.max_retries"),
    "tableRefreshInterval": not_needed("the table is read again by each run"),
    "exactlyOnce": not_needed("always"),
    "suppressTableExistenceException": none("a missing table is created, or is an error"),
    "clickhouseSettings": equivalent("the ClickHouse connection's settings"),
    "topic2TableMap": equivalent("tables[].route.topics, or overrides"),
    "customInsertFormat": none("records are decoded by `source.value.format`, and inserted typed"),
    "insertFormat": equivalent("source.value.format: json, for texts in JSON; records are inserted typed"),
    "proxyType": none("HTTPS_PROXY names the proxy, for the run and for Spark's workers"),
    "proxyHost": none("HTTPS_PROXY names the proxy, for the run and for Spark's workers"),
    "proxyPort": none("HTTPS_PROXY names the proxy, for the run and for Spark's workers"),
    "zkPath": equivalent("the ClickHouse connection's keeper_path; ours begins empty, the sink's state is taken over"),
    "zkDatabase": equivalent(
        "the ClickHouse connection's state_table; ours begins empty, the sink's state is taken over"
    ),
    "keeperOnCluster": equivalent("the ClickHouse connection's cluster"),
    "clusterName": equivalent("the ClickHouse connection's cluster"),
    "enableDbTopicSplit": equivalent("tables[].table: the database is the topic's first part"),
    "dbTopicSplitChar": equivalent("tables[].table: the database is the topic's first part"),
    "bypassRowBinary": not_needed("inserts are in Arrow"),
    "bypassSchemaValidation": not_needed("what does not fit is found before it is written"),
    "bypassFieldCleanup": not_needed("only declared columns are written"),
    "dateTimeFormats": none("times are RFC 3339 text or milliseconds; read others by to_timestamp in source.transform"),
    "clientVersion": not_needed("there is one client"),
    "client_version": not_needed("there is one client"),
    "tolerateStateMismatch": not_needed("a batch is immutable, so a retry is always the same one"),
    "debeziumCDCEnabled": none("an import is refused where it is on: a pipeline makes tables of its own"),
    "ignorePartitionsWhenBatching": not_needed("a batch spans partitions"),
    "bufferCount": equivalent("batch.max_records"),
    "bufferFlushTime": equivalent("cron, or interval where it is under a minute"),
    "reportInsertedOffsets": not_needed("the consumer group always follows the tables"),
    "auto.evolve": equivalent("source.value.unknown_fields: add, and tables[].evolve"),
    "auto.evolve.ddl.refresh.retries": not_needed("a run looks at the table before it writes"),
    "auto.evolve.struct.to.json": equivalent("tables[].column_types: {<column>: JSON}"),
}
