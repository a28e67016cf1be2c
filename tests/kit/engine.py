"""The engine in this process, all roles in one Spark session: for tests of results, where nothing has to be killed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from jobs import protocol
from jobs.batch import LandedBatch
from jobs.destinations.base import Destination
from jobs.merged import MergedBatches
from jobs.pipeline import Pipeline
from jobs.replay.landed import replay_batches
from jobs.spark.sessions import OneSession
from jobs.spec.pipeline import PipelineSpec
from resources.connections import Connections, IcebergConnection, SparkConnection
from resources.iceberg import IcebergCatalog
from resources.spark import open_session
from tests.kit.flow import Flow, rows
from tests.kit.model import Row
from tests.kit.records import Record, bootstrap, produce


def catalog(connections: Connections) -> IcebergCatalog:
    return IcebergCatalog("lake", connections.get("lake", IcebergConnection))


@contextmanager
def session(connections: Connections) -> Iterator[SparkSession]:
    """A Spark session that knows the lake."""
    opened = open_session(
        connections.get("spark", SparkConnection), f"tests/{uuid.uuid4()}", catalog(connections).spark_settings()
    )
    try:
        yield opened
    finally:
        opened.stop()


@dataclass
class Engine:
    """One flow, run here.

    Attributes:
        document: the pipeline file; set it to another one to run as after an edit.
    """

    flow: Flow
    connections: Connections
    spark: SparkSession
    document: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.document = self.document or self.flow.spec_document

    @property
    def pipeline(self) -> Pipeline:
        spec = PipelineSpec.model_validate(self.document)
        sessions = OneSession(lambda: self.spark)
        return Pipeline(self.flow.name, spec, self.connections, run_id="test", sessions=sessions)

    def edited(self, **parts: object) -> Engine:
        """This flow with parts of its pipeline file replaced."""
        return replace(self, document={**self.document, **parts})

    def with_source(self, **parts: object) -> Engine:
        """This flow with parts of `source` replaced."""
        return self.edited(source={**self.document["source"], **parts})

    def with_value(self, **parts: object) -> Engine:
        """This flow with parts of `source.value` replaced."""
        return self.with_source(value={**self.document["source"]["value"], **parts})

    def with_table_options(self, **options: object) -> Engine:
        """This flow with these options of every table."""
        tables = self.document["tables"]
        return self.edited(tables=[{**table, **options} for table in tables])

    def destination(self, mode: str) -> Destination:
        return self.pipeline.destination(self.flow.table(mode))

    def read(self, mode: str) -> list[Row]:
        return rows(self.connections, self.flow.table(mode))

    def produce(self, *records: Record) -> None:
        produce(bootstrap(self.connections), self.flow.topic, records)

    def land(self, batches: int = 0) -> list[LandedBatch]:
        return list(protocol.land(self.pipeline, batches))

    def merge(self, mode: str) -> MergedBatches | None:
        return protocol.merge(self.pipeline, self.destination(mode))

    def merge_all(self) -> None:
        if self.pipeline.spec.commit == "together":
            protocol.merge_together(self.pipeline)
            return
        for mode in self.flow.modes:
            self.merge(mode)

    def advance(self, batches: int = 0) -> list[LandedBatch]:
        landed = self.land(batches)
        self.merge_all()
        return landed

    def replay(self, mode: str, first: int, last: int) -> MergedBatches | None:
        return replay_batches(self.pipeline, self.destination(mode), first, last)
