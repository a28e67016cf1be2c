"""OpenLineage: every landing and merge as a run of a job with its datasets and columns.

Sent by OpenLineage's own client where its environment names a receiver (`OPENLINEAGE_URL`, or its other variables).
A receiver that does not answer, and wrong settings, are a warning in the run's log: lineage never stops data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from jobs.destinations.base import Destination
from jobs.iceberg import FORMAT
from jobs.landing.intermediate import IntermediateTable
from jobs.pipeline import Pipeline
from jobs.spec.columns import RowColumn
from orchestration.open_lineage_dataset import Dataset
from resources.connections import KafkaConnection

_RECEIVERS = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE")


@dataclass
class RowsWritten:
    """What a step has written; filled in while it works.

    Attributes:
        rows: written to the output; None where that is not known.
    """

    rows: int | None = None


def topics(pipeline: Pipeline) -> list[Dataset]:
    """The pipeline's topics; a pattern stands for those that match it."""
    source = pipeline.spec.source
    connection = pipeline.connections.get(source.connection, KafkaConnection)
    server = connection.bootstrap_servers.split(",")[0].strip()
    return [Dataset(f"kafka://{server}", name) for name in ([source.pattern] if source.pattern else source.topics)]


def landing(place: IntermediateTable) -> Dataset:
    return Dataset(f"{FORMAT}://{place.catalog.name}", place.identifier)


def destination(table: Destination, columns: Sequence[RowColumn], origin: Dataset) -> Dataset:
    return Dataset(*table.dataset(), tuple(columns), origin)


@contextmanager
def reported(pipeline: Pipeline, job: str, inputs: Sequence[Dataset], output: Dataset) -> Iterator[RowsWritten]:
    """Sends the receiver the beginning of the job and its end. Without a receiver it does nothing.

    Args:
        job: the step's name within the pipeline.
    """
    work = RowsWritten()
    if not any(os.environ.get(name) for name in _RECEIVERS):
        yield work
        return
    from orchestration.open_lineage_sender import Sender  # its client is loaded only where it is wanted

    sender = Sender(pipeline.name, pipeline.run_id, job, inputs, output)
    sender.began()
    try:
        yield work
    except BaseException as problem:
        sender.failed(problem)
        raise
    sender.completed(work.rows)


def send_landed(pipeline: Pipeline, rows: int) -> None:
    """Sends the lineage of finished landings: topics became rows of the intermediate table."""
    with reported(pipeline, "landing", topics(pipeline), landing(pipeline.intermediate)) as work:
        work.rows = rows


def send_merged(pipeline: Pipeline, table: Destination, columns: Sequence[RowColumn], rows: int) -> None:
    """Sends the lineage of finished merges: landed rows became rows of a table."""
    place = landing(pipeline.intermediate)
    with reported(pipeline, table.name, [place], destination(table, columns, place)) as work:
        work.rows = rows
