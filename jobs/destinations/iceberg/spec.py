"""The entry of an Iceberg table in a pipeline file."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from jobs.spec.tables import TABLE_NAME, Table


class IcebergTable(Table):
    """A destination table in an Iceberg catalog."""

    kind: Literal["iceberg"]
    connection: str = Field("lake", description="name of the Iceberg connection")
    table: str = Field(pattern=TABLE_NAME, description="namespace.table")
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
