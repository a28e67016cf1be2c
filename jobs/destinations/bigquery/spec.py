"""The entry of a BigQuery table in a pipeline file."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from jobs.spec.tables import Table

BigQueryType = Literal["JSON", "GEOGRAPHY", "TIME", "DATE", "DATETIME", "TIMESTAMP", "NUMERIC", "BIGNUMERIC"]
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_ROWS_A_LOAD = 1_000_000


class BigQueryTable(Table):
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
