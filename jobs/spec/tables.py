"""The `tables` part of a pipeline file: the destination tables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from jobs.spec.base import Spec

Mode = Literal["append", "upsert", "upsert_delete", "delete"]
_NAME = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$"


class Evolution(Spec):
    """Which schema changes are allowed; anything else is refused before a byte is written."""

    add_columns: bool = True
    widen_types: bool = Field(True, description="int to long, float to double, decimal to more digits")
    relax_required: bool = Field(True, description="required to optional")


class TableBase(Spec):
    """What destination tables of every kind have."""

    connection: str
    mode: Mode = Field(description="append | upsert | upsert_delete | delete")
    create: bool = Field(True, description="create the table when it is missing")
    evolve: Evolution = Evolution()
    metadata_columns: list[Literal["topic", "partition", "offset", "timestamp", "batch"]] = Field(
        default_factory=list, description="adds _topic, _partition, _offset, _timestamp, _batch"
    )
    time_limit_seconds: int = Field(3600, gt=0, description="after this the merge is given up and retried later")

    max_commit_attempts: int = Field(8, ge=1, description="how often to start over when other writers get in between")

    @property
    def needs_key(self) -> bool:
        return self.mode != "append"


class IcebergTable(TableBase):
    """A destination table in an Iceberg catalog."""

    kind: Literal["iceberg"]
    connection: str = "lake"
    table: str = Field(pattern=_NAME, description="namespace.table")
    branch: str = Field("main", description="the branch to publish to")
    partition_by: list[str] = Field(
        default_factory=list, description="for example [day(scheduled), bucket(16, carrier), truncate(2, code), origin]"
    )
    write: Literal["copy_on_write", "merge_on_read"] = "copy_on_write"
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
    connection: str = "clickhouse"
    table: str = Field(pattern=_NAME, description="database.table")
    engine: str | None = Field(None, description="left out: MergeTree for append, ReplacingMergeTree otherwise")
    order_by: list[str] = Field(default_factory=list, description="left out: the key columns")
    partition_by: str | None = Field(None, description="an expression, for example toYYYYMM(scheduled)")
    ttl: str | None = None
    settings: dict[str, str | int] = Field(default_factory=dict)
    column_types: dict[str, str] = Field(default_factory=dict, description="ClickHouse types for single columns")
    chunk_rows: int = Field(100_000, gt=0, description="offsets per insert")
    shard_by: list[str] = Field(default_factory=list, description="columns whose hash picks the endpoint")
    hash_function: Literal["sipHash64", "cityHash64", "xxHash64", "murmurHash3_64"] = "sipHash64"

    @property
    def name(self) -> str:
        return self.table


class BigQueryTable(TableBase):
    """A destination table in BigQuery."""

    kind: Literal["bigquery"]
    connection: str = "bigquery"
    table: str = Field(pattern=_NAME, description="dataset.table")
    intermediate_suffix: str = Field("tmp", pattern=r"^[A-Za-z0-9_]+$")
    merge_interval_seconds: int | None = Field(None, gt=0, description="flush at most this often")
    merge_records_threshold: int | None = Field(None, gt=0, description="flush when so many records wait")
    time_partitioning: Literal["HOUR", "DAY", "MONTH", "YEAR"] | None = None
    partition_column: str | None = None
    partition_expiration_days: int | None = Field(None, gt=0)
    require_partition_filter: bool = False
    cluster_by: list[str] = Field(default_factory=list, max_length=4)
    labels: dict[str, str] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.table


Table = Annotated[IcebergTable | ClickHouseTable | BigQueryTable, Field(discriminator="kind")]


__all__ = ["BigQueryTable", "ClickHouseTable", "Evolution", "IcebergTable", "Mode", "Table", "TableBase"]
