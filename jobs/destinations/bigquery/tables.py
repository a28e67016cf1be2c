"""Creates BigQuery tables and changes their schemas; refuses a change before it asks BigQuery for any."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from google.cloud import bigquery
from google.cloud.bigquery import SchemaField

from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.schema import Fields, changed_fields, lacking, plan_changes, standard_type
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.statements import Whole
from jobs.evolution import SchemaChange
from jobs.spec.tables import Evolution
from resources.bigquery import BigQuery
from resources.bigquery_labels import label
from resources.errors import CommitFailed
from sql import render

DAY_MS = 24 * 3600 * 1000
_ATTEMPTS = 5
_DELETES = "batchmerge-deletes"
HAS_DELETES = {_DELETES: "kept"}
"""Labels of a staging table that has its deletes again."""


def destination_table(table_id: str, spec: BigQueryTable, columns: Sequence[Column]) -> bigquery.Table:
    """The destination table as it is created."""
    table = bigquery.Table(table_id, schema=[c.field.to_api_repr() for c in columns])
    table.labels = dict(spec.labels)
    table.description = spec.description
    if spec.time_partitioning:
        expiration = spec.partition_expiration_days
        table.time_partitioning = bigquery.TimePartitioning(
            type_=spec.time_partitioning,
            field=spec.partition_column,
            expiration_ms=expiration * DAY_MS if expiration else None,
        )
        table.require_partition_filter = spec.require_partition_filter
    if spec.cluster_by:
        table.clustering_fields = list(spec.cluster_by)
    return table


def as_partitioned(spec: BigQueryTable, present: bigquery.Table | None) -> BigQueryTable:
    """The entry with the partitions by ingestion time that the table has: the options are for tables that we create,
    and only a table with such partitions has `_PARTITIONTIME`, in their size."""
    if present is None or not spec.by_ingestion_time:
        return spec
    found = present.time_partitioning
    if found and found.field is None:
        return spec.model_copy(update={"time_partitioning": found.type_})
    return spec.model_copy(update={"time_partitioning": None, "require_partition_filter": False})


def demanded_filter(present: bigquery.Table | None) -> Whole | None:
    """The column by which queries of the table have to filter: the option of the file is for tables that we create."""
    if present is None or not present.require_partition_filter:
        return None
    by = present.range_partitioning or present.time_partitioning
    if by is None or by.field is None:
        return Whole("_PARTITIONTIME", "TIMESTAMP")
    field = next(f for f in present.schema if f.name.lower() == by.field.lower())
    return Whole(field.name, standard_type(field))


def new_staging_table(
    table_id: str, pipeline: str, dest: str, fields: Fields, lacks_deletes: bool = False
) -> bigquery.Table:
    """A staging table: partitioned by ingestion time, clustered by what merges and clean-up filter by.

    Partitioned tables also have a far larger daily quota of modifications than others (vendor page "Quotas").

    Args:
        lacks_deletes: it replaces a lost one that kept deletes, and has to get them back before it is used.
    """
    table = bigquery.Table(table_id, schema=[field.to_api_repr() for field in fields])
    table.time_partitioning = bigquery.TimePartitioning(type_="DAY")
    table.clustering_fields = ["batchNumber"]
    lost = {_DELETES: "lost"} if lacks_deletes else {}
    table.labels = {"batchmerge-pipeline": label(pipeline), "batchmerge-table": label(dest), **lost}
    table.description = f"Changes on their way into {dest}. Kept by Batchmerge, emptied after each merge."
    return table


def state_label(pipeline: str) -> str:
    """The label of destination tables that have had a state row of this pipeline."""
    return label(f"batchmerge-of-{pipeline}")


def lacks_deletes(table: bigquery.Table) -> bool:
    return bool(table.labels.get(_DELETES) == "lost")


def evolve(
    bigquery_: BigQuery,
    table: str,
    wanted: Fields,
    rules: Evolution,
    dry_run: bool = False,
    compared: Collection[str] = (),
    present: bigquery.Table | None = None,
) -> list[SchemaChange]:
    """Changes an existing table so that rows of `wanted` fit; returns the changes.

    Args:
        compared: the names of the columns by which rows are compared.
        present: the table as it was just found; None: it is asked for.

    Raises:
        SchemaRefused: a change that no rule allows, or a collation (`plan_changes`); nothing was changed.
        CommitFailed: other writers changed the schema during every attempt.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        found, present = present or bigquery_.find_table(table), None
        assert found is not None, "the caller has just seen it"
        changes = plan_changes(table, found.schema, wanted, rules, compared)
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
    changed = bigquery.Table.from_api_repr(found.to_api_repr())
    changed.schema = fields
    bigquery_.update_table(changed, ["schema"])
    after = bigquery_.find_table(table)
    assert after is not None
    for field in lacking(after.schema, fields):
        text = render("bigquery", "widen_struct", table=bigquery_.table_id(table), field=field)
        bigquery_.change(text, {}, table)
