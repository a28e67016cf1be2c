"""The entry of a ClickHouse table in a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator, model_validator

from jobs.spec.tables import TABLE_NAME, Mode, OutOfRange, Table, out_of_range_option
from resources.config_files.mistakes import Mistake, Path, refuse

# Columns that we add; expressions may use them.
OURS = VERSION, DELETED = "_version", "_deleted"


class ClickHouseTable(Table):
    """A destination table in ClickHouse."""

    kind: Literal["clickhouse"]
    connection: str = Field("clickhouse", description="name of the ClickHouse connection")
    table: str = Field(
        pattern=TABLE_NAME,
        description="database.table, of letters, digits, _ and -; everything after the first dot is the table's "
        "own name",
        examples=["air.flights"],
    )
    engine: str | None = Field(
        None,
        description="when we create the table; left out: MergeTree for append, ReplacingMergeTree otherwise; a name "
        "(for example "
        "ReplicatedMergeTree), or a name with all its arguments",
    )
    order_by: list[str] = Field(default_factory=list, description="when we create the table; left out: the key columns")
    partition_by: str | None = Field(
        None, description="an expression, when we create the table, for example toYYYYMM(scheduled)"
    )
    ttl: str | None = Field(
        None, description="an expression, when we create the table, for example `scheduled + INTERVAL 1 YEAR`"
    )
    settings: dict[str, str | int] = Field(default_factory=dict, description="settings of the table when we create it")
    column_types: dict[str, str] = Field(default_factory=dict, description="ClickHouse types for single columns")
    null_collections: Literal["refuse", "empty"] = Field(
        "refuse",
        description="arrays, maps and tuples cannot be null in ClickHouse: refuse (the row is a dead letter), or "
        "empty (they are stored empty)",
    )
    out_of_range: OutOfRange = out_of_range_option(
        "dates and times outside of 1900 to 2299, and what is outside of the range of a type in `column_types`"
    )
    chunk_rows: int = Field(
        250_000,
        gt=0,
        description="the most offsets per insert; fewer where rows are large, or where the cluster has more cores",
    )
    shard_by: list[str] = Field(
        default_factory=list,
        description="columns whose hash picks the endpoint; left out: the key columns, or topic and partition",
    )
    hash_function: Literal["sipHash64", "cityHash64", "xxHash64", "murmurHash3_64"] = Field(
        "sipHash64", description="ClickHouse's function that picks the endpoint of a row"
    )

    @staticmethod
    def path_of(table: str) -> tuple[str, str]:
        """Splits a name into database and table; the table's name may contain dots."""
        database, _, name = table.partition(".")
        return database, name

    @property
    def path(self) -> tuple[str, str]:
        return self.path_of(self.table)

    @field_validator("mode")
    @classmethod
    def _delete_has_no_right_way(cls, mode: Mode) -> Mode:
        if mode == "delete":
            what = "ClickHouse cannot add every change as a row and remove the rows of deleted keys in one step"
            remedy = "use upsert_delete (one row per key) or append (rows of deletes are left out)"
            refuse([Mistake((), what, remedy)])
        return mode

    @model_validator(mode="before")
    @classmethod
    def _append_has_coordinates(cls, given: object) -> object:
        """Requires coordinates in append tables: without a unique key they distinguish rows."""
        if not isinstance(given, dict) or given.get("mode") != "append":
            return given
        asked = given.get("metadata_columns", [])
        if not isinstance(asked, list):
            return given
        return {**given, "metadata_columns": [*asked, *(c for c in ("topic", "partition", "offset") if c not in asked)]}

    def named_columns(self) -> Iterator[tuple[Path, str]]:
        for option in ("order_by", "shard_by"):
            yield from (((option, number), name) for number, name in enumerate(getattr(self, option)))
        yield from ((("column_types", name), name) for name in self.column_types)
        if not (self.partition_by or self.ttl):
            return
        # Imported here: an SQL parser that most files do not need.
        from jobs.destinations.clickhouse.expressions import partition_columns, ttl_columns

        for option, columns in (("partition_by", partition_columns), ("ttl", ttl_columns)):
            yield from (((option,), name) for name in columns(getattr(self, option) or "") if name not in OURS)
