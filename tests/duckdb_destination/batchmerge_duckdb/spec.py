"""What people write: an entry of `tables` in a pipeline file, and one of the connections file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from batchmerge.jobs.spec.tables import PLAIN_PART, Table
from batchmerge.resources.connections import Connection
from pydantic import Field


class DuckDbTable(Table):
    """A destination table in a DuckDB file."""

    kind: Literal["duckdb"]
    connection: str = Field("duckdb", description="name of the DuckDB connection")
    table: str = Field(pattern=rf"^{PLAIN_PART}\.{PLAIN_PART}$", description="schema.table")


class DuckDbConnection(Connection):
    """One file, which one process at a time can write."""

    kind: Literal["duckdb"]
    file: Path
    patience_seconds: float = Field(60, gt=0, description="how long to wait for another process that has it open")
