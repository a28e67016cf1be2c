"""What is measured beside ours: a process that somebody else wrote, and the Iceberg table that it fills."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

from jobs.iceberg.schema import iceberg_schema
from jobs.schema.types import parse_columns
from resources.connections import Connections, IcebergConnection
from resources.iceberg import IcebergCatalog
from resources.local import processes
from tests.benchmarks._records import COLUMNS
from tests.benchmarks._visible import rows_of
from tests.benchmarks._workload import new_name


@dataclass(frozen=True)
class SinkTable:
    """A new table in the lake, for the benchmarks' records."""

    catalog: IcebergCatalog
    name: str

    @classmethod
    def make(cls, connections: Connections) -> SinkTable:
        made = cls(IcebergCatalog("lake", connections.get("lake", IcebergConnection)), new_name())
        schema = pa.schema([field.with_nullable(True) for field in parse_columns(COLUMNS)])
        compressed = {"write.parquet.compression-codec": "zstd"}
        made.catalog.create(made.full_name, iceberg_schema(schema), properties=compressed)
        return made

    @property
    def full_name(self) -> str:
        return f"bench.{self.name}"

    @property
    def loaded(self) -> Table:
        return self.catalog.require(self.full_name)


@dataclass(frozen=True)
class Sink:
    """The process that fills it."""

    process: processes.Running
    log: Path
    table: SinkTable

    def rows(self) -> int:
        """That are visible now. Ends the benchmark where the process has died."""
        found = rows_of(self.table.loaded)
        if not processes.is_alive(self.process):
            raise SystemExit(f"the sink has ended with {found:,} rows:\n{self.log.read_text()[-3000:]}")
        return found
