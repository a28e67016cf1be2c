"""The `tables` part of a pipeline file: the destination tables."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from jobs.spec.base import ByTag, Spec
from jobs.spec.routing import Route

Mode = Literal["append", "upsert", "upsert_delete", "delete"]
BigQueryType = Literal["JSON", "GEOGRAPHY", "TIME", "DATE", "DATETIME", "TIMESTAMP", "NUMERIC", "BIGNUMERIC"]
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_ROWS_A_LOAD = 1_000_000
_NAME = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$"


class Evolution(Spec):
    """Which schema changes are allowed; anything else is refused before a byte is written."""

    add_columns: bool = Field(True, description="new columns, nested ones too, as optional")
    widen_types: bool = Field(True, description="int to long, float to double, decimal to more digits")
    relax_required: bool = Field(True, description="required to optional")


class TableBase(Spec):
    """What destination tables of every kind have."""

    connection: str
    mode: Mode = Field(
        description="append: every change but deletes is a row; upsert: one row a key, deletes ignored; "
        "upsert_delete: one row a key; delete: every change is a row, and a delete removes the rows of its key"
    )
    route: Route | None = None
    create: bool = Field(True, description="create the table when it is missing")
    evolve: Evolution = Evolution()
    metadata_columns: list[Literal["topic", "partition", "offset", "timestamp", "batch"]] = Field(
        default_factory=list,
        description="adds _topic, _partition (__partition where that is a reserved name: Iceberg, BigQuery), _offset, "
        "_timestamp, _batch",
    )
    time_limit_seconds: int = Field(3600, gt=0, description="after this the merge is given up and retried later")

    max_commit_attempts: int = Field(8, ge=1, description="how often to start over when other writers get in between")

    @property
    def needs_key(self) -> bool:
        return self.mode != "append"


class IcebergTable(TableBase):
    """A destination table in an Iceberg catalog."""

    kind: Literal["iceberg"]
    connection: str = Field("lake", description="name of the Iceberg connection")
    table: str = Field(pattern=_NAME, description="namespace.table")
    branch: str = Field("main", description="the branch to publish to")
    partition_by: list[str] = Field(
        default_factory=list, description="for example [day(scheduled), bucket(16, carrier), truncate(2, code), origin]"
    )
    sort_by: list[str] | None = Field(
        None,
        description="columns that the files are sorted by, set when we create the table, so that a merge finds and "
        "rewrites few of them; left out: the key columns, or none for append",
    )
    write: Literal["copy_on_write", "merge_on_read"] = Field(
        "copy_on_write", description="how updates and deletes are written, set when we create the table"
    )
    properties: dict[str, str] = Field(default_factory=dict, description="table properties, set when we create it")
    on_rollback: Literal["hold", "replay", "skip"] = Field(
        "hold", description="the table was rolled back: hold (stop and explain), replay what was undone, or skip it"
    )

    @property
    def name(self) -> str:
        return self.table


class ClickHouseTable(TableBase):
    """A destination table in ClickHouse."""

    kind: Literal["clickhouse"]
    connection: str = Field("clickhouse", description="name of the ClickHouse connection")
    table: str = Field(pattern=_NAME, description="database.table")
    engine: str | None = Field(
        None,
        description="left out: MergeTree for append, ReplacingMergeTree otherwise; a name (for example "
        "ReplicatedMergeTree), or a name with all its arguments",
    )
    order_by: list[str] = Field(default_factory=list, description="left out: the key columns")
    partition_by: str | None = Field(None, description="an expression, for example toYYYYMM(scheduled)")
    ttl: str | None = Field(None, description="an expression, for example `scheduled + INTERVAL 1 YEAR`")
    settings: dict[str, str | int] = Field(default_factory=dict, description="settings of the table when we create it")
    column_types: dict[str, str] = Field(default_factory=dict, description="ClickHouse types for single columns")
    null_collections: Literal["refuse", "empty"] = Field(
        "refuse",
        description="arrays, maps and tuples cannot be null in ClickHouse: refuse (such a row is a dead letter) or "
        "store them empty",
    )
    chunk_rows: int = Field(250_000, gt=0, description="offsets per insert")
    shard_by: list[str] = Field(
        default_factory=list,
        description="columns whose hash picks the endpoint; left out: the key columns, or topic and partition",
    )
    hash_function: Literal["sipHash64", "cityHash64", "xxHash64", "murmurHash3_64"] = Field(
        "sipHash64", description="ClickHouse's function that picks the endpoint of a row"
    )

    @property
    def name(self) -> str:
        return self.table

    @field_validator("mode")
    @classmethod
    def _delete_has_no_right_way(cls, mode: Mode) -> Mode:
        if mode == "delete":
            raise ValueError(
                "ClickHouse cannot add every change as a row and remove the rows of deleted keys in one step; "
                "use upsert_delete (one row per key) or append (rows of deletes are left out)"
            )
        return mode

    @model_validator(mode="before")
    @classmethod
    def _append_has_coordinates(cls, given: object) -> object:
        """Rows of a table without a unique key are told apart by where they come from."""
        if not isinstance(given, dict) or given.get("mode") != "append":
            return given
        asked = list(given.get("metadata_columns", []))
        return {**given, "metadata_columns": [*asked, *(c for c in ("topic", "partition", "offset") if c not in asked)]}


class BigQueryTable(TableBase):
    """A destination table in BigQuery."""

    kind: Literal["bigquery"]
    connection: str = Field("bigquery", description="name of the BigQuery connection")
    table: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*$", description="dataset.table")
    intermediate_suffix: str = Field(
        "tmp", pattern=r"^[A-Za-z0-9_]+$", description="the intermediate table is _<table>_<suffix>_<pipeline>_…"
    )
    merge_interval_seconds: int | None = Field(
        0, ge=0, description="merge when the oldest waiting batch is so old; 0: at every run; null: off"
    )
    merge_records_threshold: int | None = Field(None, gt=0, description="merge when so many records wait; null: off")
    time_partitioning: Literal["HOUR", "DAY", "MONTH", "YEAR"] | None = Field(
        None, description="partition the table by `partition_column`, or by ingestion time where none is named"
    )
    partition_column: str | None = Field(None, description="a date or timestamp column")
    partition_time: Literal["record", "ingestion"] | None = Field(
        None, description="ingestion-time partitions only: a row's partition follows its record (default) or the merge"
    )
    partition_expiration_days: int | None = Field(None, gt=0, description="partitions are dropped after this")
    require_partition_filter: bool = Field(False, description="queries must name partitions; our merges do")
    cluster_by: list[str] = Field(default_factory=list, max_length=4, description="at most four columns")
    labels: dict[str, str] = Field(default_factory=dict, description="labels of the table, set when we create it")
    description: str | None = Field(None, description="the table's description in BigQuery")
    column_types: dict[str, BigQueryType] = Field(
        default_factory=dict, description="BigQuery types for single columns, for example {payload: JSON}"
    )
    sanitize_names: bool = Field(
        False, description="replace what BigQuery does not allow in a column's name by _; false: refuse it"
    )
    null_elements: Literal["refuse", "drop"] = Field(
        "refuse", description="a null in an array, which BigQuery cannot store: stop, or leave it out"
    )
    load_rows: int | None = Field(
        None,
        gt=0,
        description="most offsets in one load job, whose rows are sent; null: BigQuery reads the landed files itself "
        "where it can, else 1000000",
    )

    @property
    def name(self) -> str:
        return self.table

    @property
    def rows_a_load(self) -> int:
        """Most offsets in a load job whose rows are sent."""
        return self.load_rows or _ROWS_A_LOAD

    @property
    def by_ingestion_time(self) -> bool:
        """Partitioned by `_PARTITIONTIME`."""
        return self.time_partitioning is not None and self.partition_column is None

    @model_validator(mode="after")
    def _options_fit_together(self) -> BigQueryTable:
        problems = [text for wrong, text in self._rules() if wrong]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _rules(self) -> list[tuple[bool, str]]:
        partitioned = self.time_partitioning is not None
        bad_labels = [k for k, v in self.labels.items() if not (_LABEL.fullmatch(k) and _LABEL_VALUE.fullmatch(v))]
        return [
            (
                self.merge_interval_seconds is None and self.merge_records_threshold is None,
                "one of merge_interval_seconds and merge_records_threshold must be on",
            ),
            (
                self.partition_column is not None and not partitioned,
                "partition_column needs time_partitioning (HOUR, DAY, MONTH or YEAR)",
            ),
            (
                self.partition_time is not None and not self.by_ingestion_time,
                "partition_time is for partitions by ingestion time: time_partitioning without partition_column",
            ),
            (
                self.partition_expiration_days is not None and not partitioned,
                "partition_expiration_days needs time_partitioning",
            ),
            (self.require_partition_filter and not partitioned, "require_partition_filter needs time_partitioning"),
            (len(set(self.cluster_by)) != len(self.cluster_by), "cluster_by names a column twice"),
            (
                bool(bad_labels),
                f"labels: {', '.join(bad_labels)}: lower case letters, digits, _ and -, at most 63, a letter first",
            ),
        ]


Table = Annotated[IcebergTable | ClickHouseTable | BigQueryTable, Field(discriminator="kind"), ByTag("kind")]


__all__ = ["BigQueryTable", "ClickHouseTable", "Evolution", "IcebergTable", "Mode", "Table", "TableBase"]
