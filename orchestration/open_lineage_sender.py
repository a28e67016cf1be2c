"""The events of one job's run, through OpenLineage's client, which reads its settings from its own environment."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    error_message_run,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
)
from openlineage.client.transport.http import HttpConfig, HttpTransport

from jobs.schema.types import type_name
from orchestration.open_lineage_dataset import Dataset
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")
_PRODUCER = "batchmerge"


def _client() -> OpenLineageClient:
    """A client that tries each event once more, unless the environment sets another number. With its default of five
    a receiver that is down would delay every step by 18 s."""
    client = OpenLineageClient()
    transport = client.transport
    if isinstance(transport, HttpTransport) and transport.config.retry == HttpConfig(transport.config.url).retry:
        transport.config.retry = {**transport.config.retry, "total": 1}
    return client


@dataclass(frozen=True)
class Sender:
    """Events of a step.

    Attributes:
        run_id: the Dagster run, the parent of the step's own run.
        job: the step's name within the pipeline.
    """

    pipeline: str
    run_id: str
    job: str
    inputs: Sequence[Dataset]
    output: Dataset
    client: OpenLineageClient = field(default_factory=_client)

    def began(self) -> None:
        self._send(RunState.START)

    def failed(self, problem: BaseException) -> None:
        """Sends the text of our own errors, which has no values and no secrets; of other errors only the class."""
        self._send(RunState.FAIL, str(problem) if isinstance(problem, BatchmergeError) else type(problem).__name__)

    def completed(self, rows: int | None) -> None:
        self._send(RunState.COMPLETE, rows=rows)

    def _send(self, state: RunState, error: str | None = None, rows: int | None = None) -> None:
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE", _PRODUCER)
        event = RunEvent(
            eventType=state,
            eventTime=datetime.now(UTC).isoformat(),
            producer=_PRODUCER,
            run=self._run(namespace, error),
            job=Job(namespace, f"{self.pipeline}.{self.job}"),
            inputs=[InputDataset(one.namespace, one.name) for one in self.inputs],
            outputs=[_output(self.output, rows)],
        )
        try:
            self.client.emit(event)
        except Exception as failed:
            _LOG.warning("OpenLineage's receiver did not accept an event of %s: %s", self.job, type(failed).__name__)

    def _run(self, namespace: str, error: str | None) -> Run:
        own = uuid.uuid5(uuid.NAMESPACE_URL, f"{self.run_id}/{self.job}")
        parent = parent_run.ParentRunFacet(parent_run.Run(self.run_id), parent_run.Job(namespace, self.pipeline))
        message = {"errorMessage": error_message_run.ErrorMessageRunFacet(error, "python")} if error else {}
        return Run(str(own), facets={"parent": parent, **message})


def _output(output: Dataset, rows: int | None) -> OutputDataset:
    columns = [schema_dataset.SchemaDatasetFacetFields(c.name, type_name(c.type)) for c in output.columns]
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
    return OutputDataset(
        output.namespace,
        output.name,
        facets={
            **({"schema": schema_dataset.SchemaDatasetFacet(columns)} if columns else {}),
            **({"columnLineage": _column_lineage(output, output.origin)} if output.origin else {}),
        },
        outputFacets={"outputStatistics": statistics} if rows is not None else {},
    )


def _column_lineage(output: Dataset, origin: Dataset) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    return column_lineage_dataset.ColumnLineageDatasetFacet(
        {
            column.name: column_lineage_dataset.Fields(
                [column_lineage_dataset.InputField(origin.namespace, origin.name, ".".join(column.path))]
            )
            for column in output.columns
        }
    )
