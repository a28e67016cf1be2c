"""The entry of an Iceberg table in a pipeline file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field, field_validator

from jobs.iceberg.partition_text import REMEDY, parse_partition
from jobs.spec.tables import TABLE_NAME, Table
from resources.config_files.mistakes import Mistake, Path, refuse


class IcebergTable(Table):
    """A destination table in an Iceberg catalog."""

    kind: Literal["iceberg"]
    connection: str = Field("lake", description="name of the Iceberg connection")
    table: str = Field(
        pattern=TABLE_NAME, description="namespace.table, of letters, digits, _ and -", examples=["air.flights"]
    )
    branch: str = Field("main", description="the branch to publish to")
    partition_by: list[str] = Field(
        default_factory=list,
        description='when we create the table; for example [day(scheduled), "bucket(16, carrier)", "truncate(2, '
        'code)", origin]',
    )
    sort_by: list[str] | None = Field(
        None,
        description="columns by which files are sorted, set when we create the table; then a merge searches few "
        "files. Left out: the key columns, or none for append",
    )
    write: Literal["copy_on_write", "merge_on_read"] | None = Field(
        None,
        description="how updates and deletes are written, set when we create the table. Left out: merge_on_read "
        "for keyed tables of Parquet files and format version 2, else copy_on_write",
    )
    properties: dict[str, str] = Field(default_factory=dict, description="table properties, set when we create it")
    on_rollback: Literal["hold", "replay", "skip"] = Field(
        "hold",
        description="somebody rolled the table back: hold (stop and explain), replay (merge the undone "
        "batches again), or skip (leave them out)",
    )

    @field_validator("partition_by")
    @classmethod
    def _partitions_are_understood(cls, partitions: list[str]) -> list[str]:
        refuse(
            Mistake((number,), f"{text!r} is not a partition of Iceberg's", REMEDY)
            for number, text in enumerate(partitions)
            if parse_partition(text) is None
        )
        return partitions

    def named_columns(self) -> Iterator[tuple[Path, str]]:
        for number, text in enumerate(self.partition_by):
            if partition := parse_partition(text):
                yield ("partition_by", number), partition.column
        yield from ((("sort_by", number), name) for number, name in enumerate(self.sort_by or ()))

    def has_column(self, name: str, declared: Sequence[str]) -> bool:
        # Iceberg reserves `_partition`, so ours is `__partition`.
        return name in declared or (name == "__partition" and "_partition" in declared)
