"""The entry of a BigQuery table in a pipeline file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from jobs.destinations.bigquery.names import column_name
from jobs.spec.metadata import metadata_of
from jobs.spec.tables import NAME_PART, PLAIN_PART, OnReplaced, OutOfRange, Table, out_of_range_option
from resources.config_files.mistakes import Mistake, Path

BigQueryType = Literal["JSON", "GEOGRAPHY", "TIME", "DATE", "DATETIME", "TIMESTAMP", "NUMERIC", "BIGNUMERIC"]
_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_LABELS = "use lower case letters, digits, _ and -, at most 63, and begin the name with a letter"


class BigQueryTable(Table):
    """A destination table in BigQuery."""

    kind: Literal["bigquery"]
    connection: str = Field("bigquery", description="name of the BigQuery connection")
    table: str = Field(
        pattern=rf"^{PLAIN_PART}\.{NAME_PART}$",
        description="dataset.table, of letters, digits and _; the table's name also of -, and of no dot",
        examples=["air.flights"],
    )
    intermediate_suffix: str = Field(
        "tmp",
        pattern=r"^[A-Za-z0-9_]+$",
        description="suffix of the staging table's name, _<table>_<suffix>_<pipeline>_…; not of the intermediate table",
        examples=["tmp"],
    )
    merge_interval_seconds: int | None = Field(
        0,
        ge=0,
        description="merge when the oldest waiting batch is this many seconds old; 0: at every run, or with "
        "`interval` at every batch, each time by a load and a MERGE; null: off",
    )
    merge_records_threshold: int | None = Field(None, gt=0, description="merge when this many records wait; null: off")
    time_partitioning: Literal["HOUR", "DAY", "MONTH", "YEAR"] | None = Field(
        None,
        description="when we create the table: partition it by `partition_column`, or without one by ingestion time",
    )
    partition_column: str | None = Field(None, description="a date or timestamp column")
    partition_time: Literal["record", "ingestion"] | None = Field(
        None,
        description="ingestion-time partitions only: a row's partition is that of its record's time "
        "(default) or of the merge's time",
    )
    partition_expiration_days: int | None = Field(
        None, gt=0, description="when we create the table: partitions are dropped after this"
    )
    require_partition_filter: bool = Field(
        False,
        description="when we create the table: queries must name partitions. A merge reads the whole table, unless "
        "the partition column is a key column",
    )
    cluster_by: list[str] = Field(
        default_factory=list, max_length=4, description="at most four columns, when we create the table"
    )
    labels: dict[str, str] = Field(default_factory=dict, description="labels of the table, set when we create it")
    description: str | None = Field(None, description="the table's description in BigQuery, when we create it")
    column_types: dict[str, BigQueryType] = Field(
        default_factory=dict, description="BigQuery types for single columns, for example {payload: JSON}"
    )
    sanitize_names: bool = Field(
        False,
        description="true: `_` replaces characters that BigQuery does not allow in a column's name; false: "
        "such a name is refused",
    )
    null_elements: Literal["refuse", "drop"] = Field(
        "refuse",
        description="a null in an array, which BigQuery cannot store: refuse (the row is a dead letter), or drop "
        "(the null is left out)",
    )
    on_replaced: OnReplaced = Field(
        "hold",
        description="somebody has replaced the table, and replays cannot recognize its rows (mode append without "
        "coordinates): hold (stop and explain), or keep (the new table has all rows, for example after "
        "`CREATE OR REPLACE TABLE … AS SELECT`)",
    )
    out_of_range: OutOfRange = out_of_range_option("dates and times outside of the years 1 to 9999")

    @property
    def by_ingestion_time(self) -> bool:
        """Partitioned by `_PARTITIONTIME`."""
        return self.time_partitioning is not None and self.partition_column is None

    @property
    def metadata_names(self) -> frozenset[str]:
        """Names of metadata columns, which are sanitised in any case: `_partition` is reserved in BigQuery, for
        example, and becomes `__partition`."""
        return frozenset(m.column for m in metadata_of(self.metadata_columns))

    def own_mistakes(self) -> Iterator[Mistake]:
        if self.merge_interval_seconds is None and self.merge_records_threshold is None:
            remedy = "give a number here, or a `merge_records_threshold`"
            yield Mistake(("merge_interval_seconds",), "nothing says when to merge", remedy)
        if self.partition_time is not None and not self.by_ingestion_time:
            remedy = "use `time_partitioning` without `partition_column`, or leave this out"
            yield Mistake(("partition_time",), "it is for partitions by ingestion time", remedy)
        for option in ("partition_column", "partition_expiration_days", "require_partition_filter"):
            if self.time_partitioning is None and getattr(self, option) not in (None, False):
                remedy = "name it (HOUR, DAY, MONTH or YEAR), or leave this out"
                yield Mistake((option,), "it needs `time_partitioning`", remedy)
        if twice := [name for number, name in enumerate(self.cluster_by) if name in self.cluster_by[:number]]:
            yield Mistake(("cluster_by",), f"{', '.join(twice)} is named twice", "name it once")
        for name, value in self.labels.items():
            if not (_LABEL.fullmatch(name) and _LABEL_VALUE.fullmatch(value)):
                yield Mistake(("labels", name), f"{name}: {value} is not a label of BigQuery's", _LABELS)

    def named_columns(self) -> Iterator[tuple[Path, str]]:
        if self.partition_column is not None:
            yield ("partition_column",), self.partition_column
        yield from ((("cluster_by", number), name) for number, name in enumerate(self.cluster_by))
        yield from ((("column_types", name), self._in_bigquery(name)) for name in self.column_types)

    def has_column(self, name: str, declared: Sequence[str]) -> bool:
        """BigQuery does not tell upper from lower case."""
        return name.lower() in {self._in_bigquery(one).lower() for one in declared}

    def _in_bigquery(self, name: str) -> str:
        """The column's name in BigQuery."""
        return column_name(name, self.sanitize_names or name in self.metadata_names) or name
