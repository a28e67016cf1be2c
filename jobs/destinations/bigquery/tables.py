"""Creating BigQuery tables and changing their schemas. What is refused is refused before BigQuery is asked."""

from __future__ import annotations

from collections.abc import Sequence

from google.cloud import bigquery
from google.cloud.bigquery import SchemaField

from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.schema import Fields, changed_fields, lacking, plan_changes
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.evolution import SchemaChange
from jobs.spec.tables import Evolution
from resources.bigquery import BigQuery, label
from resources.errors import CommitFailed
from sql import render

_DAY_MS = 24 * 3600 * 1000
_ATTEMPTS = 5


def destination_table(table_id: str, spec: BigQueryTable, columns: Sequence[Column]) -> bigquery.Table:
    """The destination table as it is created."""
    table = bigquery.Table(table_id, schema=[c.field for c in columns])
    table.labels = dict(spec.labels)
    table.description = spec.description
    if spec.time_partitioning:
        expiration = spec.partition_expiration_days
        table.time_partitioning = bigquery.TimePartitioning(
            type_=spec.time_partitioning,
            field=spec.partition_column,
            expiration_ms=expiration * _DAY_MS if expiration else None,
        )
        table.require_partition_filter = spec.require_partition_filter
    if spec.cluster_by:
        table.clustering_fields = list(spec.cluster_by)
    return table


def intermediate_table(table_id: str, pipeline: str, dest: str, fields: Fields) -> bigquery.Table:
    """An intermediate table: partitioned by ingestion time, clustered by what merges and clean-up filter by.

    Partitioned tables also have a far larger daily quota of modifications than others (vendor page "Quotas").
    """
    table = bigquery.Table(table_id, schema=list(fields))
    table.time_partitioning = bigquery.TimePartitioning(type_="DAY")
    table.clustering_fields = ["batchNumber"]
    table.labels = {"batchmerge-pipeline": label(pipeline), "batchmerge-table": label(dest)}
    table.description = f"Changes on their way into {dest}. Kept by Batchmerge, emptied after each merge."
    return table


def evolve(
    bigquery_: BigQuery, table: str, wanted: Fields, rules: Evolution, dry_run: bool = False
) -> list[SchemaChange]:
    """Brings an existing table to where rows of `wanted` fit in; returns the changes.

    Raises:
        SchemaRefused: a change that no rule allows; nothing was changed.
        CommitFailed: others change the schema all the time.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        found = bigquery_.find_table(table)
        assert found is not None, "the caller has just seen it"
        changes = plan_changes(table, found.schema, wanted, rules)
        if dry_run or not changes:
            return changes
        fields = changed_fields(found.schema, wanted, changes)
        try:
            _apply(bigquery_, table, found, fields)
            return changes
        except CommitFailed:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _apply(bigquery_: BigQuery, table: str, found: bigquery.Table, fields: list[SchemaField]) -> None:
    found.schema = fields
    bigquery_.update_table(found, ["schema"])
    after = bigquery_.find_table(table)
    assert after is not None
    for field in lacking(after.schema, fields):
        text = render("bigquery", "widen_struct", table=bigquery_.table_id(table), field=field)
        bigquery_.change(text, {}, table)
