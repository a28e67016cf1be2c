"""OpenLineage: every landing and merge as a run of a job with its datasets and columns.

Sent by OpenLineage's own client where its environment names a receiver (`OPENLINEAGE_URL`, or its other variables).
A receiver that does not answer, and wrong settings, are a warning in the run's log: lineage never stops data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from jobs.destinations.base import Destination
from jobs.iceberg import FORMAT
from jobs.pipeline import Pipeline
from jobs.spec.columns import RowColumn
from orchestration.open_lineage.dataset import Dataset
from resources.connections import KafkaConnection

_RECEIVERS = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE")


@dataclass
class RowsWritten:
    """What a step has written; filled in while it works.

    Attributes:
        rows: written to the output; None where that is not known.
    """

    rows: int | None = None


@contextmanager
def _reported(pipeline: Pipeline, job: str, inputs: Sequence[Dataset], output: Dataset) -> Iterator[RowsWritten]:
    """Sends the receiver the beginning of the job and its end. Without a receiver it does nothing.

    Args:
        job: the step's name within the pipeline.
    """
    work = RowsWritten()
    if not any(os.environ.get(name) for name in _RECEIVERS):
        yield work
        return
    from orchestration.open_lineage.sender import Sender  # its client is loaded only where it is wanted

    sender = Sender(pipeline.name, pipeline.run_id, job, inputs, output)
    sender.began()
    try:
        yield work
    except BaseException as problem:
        sender.failed(problem)
        raise
    sender.completed(work.rows)


def landing_reported(pipeline: Pipeline) -> AbstractContextManager[RowsWritten]:
    """Sends the lineage of a landing: topics become rows of the intermediate table. A pattern stands for its topics."""
    source = pipeline.spec.source
    connection = pipeline.connections.get(source.connection, KafkaConnection)
    server = connection.bootstrap_servers.split(",")[0].strip()
    topics = [Dataset(f"kafka://{server}", name) for name in ([source.pattern] if source.pattern else source.topics)]
    return _reported(pipeline, "landing", topics, _landed(pipeline))


def merge_reported(
    pipeline: Pipeline, table: Destination, columns: Sequence[RowColumn]
) -> AbstractContextManager[RowsWritten]:
    """Sends the lineage of a merge: landed rows become rows of a table."""
    landed = _landed(pipeline)
    return _reported(pipeline, table.name, [landed], Dataset(*table.dataset(), tuple(columns), landed))


def _landed(pipeline: Pipeline) -> Dataset:
    place = pipeline.intermediate
    return Dataset(f"{FORMAT}://{place.catalog.name}", place.identifier)


def send_landed(pipeline: Pipeline, rows: int) -> None:
    """Sends the lineage of finished landings."""
    with landing_reported(pipeline) as work:
        work.rows = rows


def send_merged(pipeline: Pipeline, table: Destination, columns: Sequence[RowColumn], rows: int) -> None:
    """Sends the lineage of finished merges."""
    with merge_reported(pipeline, table, columns) as work:
        work.rows = rows
