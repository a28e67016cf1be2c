"""A pipeline under test: its spec, driver processes that run it, and a reader of what the tables hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from jobs.failpoints import VARIABLE
from jobs.pipeline import Pipeline
from jobs.spark.sessions import OneSession, OwnSessions
from jobs.spec.pipeline import PipelineSpec
from resources.connections import Connections, IcebergConnection
from resources.iceberg import IcebergCatalog
from tests.kit.model import Row
from tests.kit.processes import end_of
from tests.kit.records import COLUMNS, KEY

ROOT = Path(__file__).parents[2]


@dataclass
class Flow:
    """One pipeline with a table of each of these modes.

    Attributes:
        overrides: parts of the pipeline file that replace the defaults.
        table_options: of each table.
        kind: of the tables.
    """

    topic: str
    modes: list[str]
    max_records: int = 1000
    overrides: dict[str, Any] = field(default_factory=dict)
    table_options: dict[str, Any] = field(default_factory=dict)
    kind: str = "iceberg"
    name: str = field(default_factory=lambda: f"p_{uuid.uuid4().hex[:8]}")

    def table(self, mode: str) -> str:
        return f"tests.{self.name}_{mode}"

    @property
    def spec_document(self) -> dict[str, Any]:
        tables = [{"kind": self.kind, "table": self.table(m), "mode": m, **self.table_options} for m in self.modes]
        return {
            "source": {
                "topics": [self.topic],
                "key": {"format": "json", "columns": KEY},
                "value": {"format": "json", "columns": COLUMNS},
            },
            "changes": {"key": {"columns": ["id"]}, "op": {"field": "op"}},
            "batch": {"max_records": self.max_records, "max_batches": 1},
            "tables": tables,
            **self.overrides,
        }

    @property
    def spec(self) -> PipelineSpec:
        return PipelineSpec.model_validate(self.spec_document)

    def pipeline(self, connections: Connections, spark: SparkSession | None = None) -> Pipeline:
        """With `spark`, all roles work in that session, since opening many takes most of a small test; without, each
        opens its own."""
        sessions = OneSession(lambda: spark) if spark else OwnSessions()
        return Pipeline(self.name, self.spec, connections, run_id="test", sessions=sessions)

    def start(
        self, home: Path, failpoint: str | None = None, batches: int = 0, replay: tuple[int, int] | None = None
    ) -> subprocess.Popen[str]:
        """The engine in a process of its own: lands up to `batches` (0: all), merges into every table; or replays these
        batches (first, last)."""
        environment = {**os.environ, "BATCHMERGE_HOME": str(home), "PYTHONPATH": str(ROOT)}
        environment.pop(VARIABLE, None)
        if failpoint:
            environment[VARIABLE] = failpoint
        document = json.dumps({"name": self.name, "spec": self.spec_document, "batches": batches, "replay": replay})
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.advance"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdin
        process.stdin.write(document)
        process.stdin.close()
        return process

    def run(self, home: Path, failpoint: str | None = None, batches: int = 0) -> tuple[int, str]:
        """Exit code (negative: the signal) and output of one driver process."""
        return end_of(self.start(home, failpoint, batches))


def rows(connections: Connections, table: str, catalog_name: str = "lake") -> list[Row]:
    """What an Iceberg table holds now, read by pyiceberg, sorted; a catalog of another name is in the lake's place."""
    catalog = IcebergCatalog(catalog_name, connections.get("lake", IcebergConnection))
    found = catalog.require(table).scan(selected_fields=("id", "name", "amount")).to_arrow().to_pylist()
    return sorted((row["id"], row["name"], row["amount"]) for row in found)
