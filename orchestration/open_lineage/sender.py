"""The events of one job's run, through OpenLineage's client, which reads its settings from its own environment."""

from __future__ import annotations

import logging
import math
import os
import time
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
from openlineage.client.uuid import generate_new_uuid

from jobs.schema.types import type_name
from orchestration.open_lineage.dataset import Dataset
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")
_PRODUCER = "batchmerge"
_WRONG_SETTINGS = (
    "OpenLineage's client does not take its settings, and sends no events: %s. "
    "Fix: look at its variables (OPENLINEAGE_…) and its file; an address begins with http:// or https://"
)
# Seconds of each minute that the events of one process may take.
_SHARE, _MINUTE = 10.0, 60.0


class TimeSpent:
    """On events, by this process, since a minute began.

    Events are sent in the steps that they are about, and `for_each` has a step for hundreds of topics: a receiver that
    hangs, or is slow, would keep data back for an hour.
    """

    def __init__(self) -> None:
        self._began, self._seconds = -math.inf, 0.0

    def is_up(self) -> bool:
        now = time.monotonic()
        if now - self._began >= _MINUTE:
            self._began, self._seconds = now, 0.0
        return self._seconds >= _SHARE

    def add(self, seconds: float) -> None:
        self._seconds += seconds
        if self._seconds >= _SHARE > self._seconds - seconds:
            _LOG.warning("OpenLineage's receiver is too slow: its next events are left out, for up to a minute")


_SPENT = TimeSpent()


def _client() -> OpenLineageClient | None:
    """A client that tries each event once more, unless the environment sets another number. With its default of five
    a receiver that is down would delay every step by 18 s. None: it does not take its settings."""
    try:
        client = OpenLineageClient()
    except Exception as refused:
        _LOG.warning(_WRONG_SETTINGS, type(refused).__name__)  # its text may have an address with a password
        return None
    transport = client.transport
    if isinstance(transport, HttpTransport) and transport.config.retry == HttpConfig(transport.config.url).retry:
        # Nor does the receiver say how long to wait (`Retry-After`).
        transport.config.retry = {**transport.config.retry, "total": 1, "respect_retry_after_header": False}
    return client


@dataclass
class Sender:
    """Events of a step.

    Attributes:
        run_id: the Dagster run, the parent of the step's own run.
        job: the step's name within the pipeline.
        own_id: of the step's run. Another try of the step, and another report of a continuous one, is another run: what
            has ended cannot begin again.
        has_begun: the receiver accepted the beginning. Then it is sent the end whatever time that takes: else the step
            would look at work for good, also if it has failed.
    """

    pipeline: str
    run_id: str
    job: str
    inputs: Sequence[Dataset]
    output: Dataset
    client: OpenLineageClient | None = field(default_factory=_client)
    own_id: str = field(default_factory=lambda: str(generate_new_uuid()), init=False)
    has_begun: bool = field(default=False, init=False)

    def began(self) -> None:
        self.has_begun = self._send(RunState.START)

    def failed(self, problem: BaseException) -> None:
        """Sends the text of our own errors, which has no values and no secrets; of other errors only the class."""
        self._send(RunState.FAIL, str(problem) if isinstance(problem, BatchmergeError) else type(problem).__name__)

    def completed(self, rows: int | None) -> None:
        self._send(RunState.COMPLETE, rows=rows)

    def _send(self, state: RunState, error: str | None = None, rows: int | None = None) -> bool:
        """Whether the receiver has accepted the event."""
        if self.client is None or (_SPENT.is_up() and not self.has_begun):
            return False
        began, accepted = time.monotonic(), False
        try:
            self.client.emit(self._event(state, error, rows))
            accepted = True
        except Exception as failed:
            _LOG.warning("OpenLineage's receiver did not accept an event of %s: %s", self.job, type(failed).__name__)
        _SPENT.add(time.monotonic() - began)
        return accepted

    def _event(self, state: RunState, error: str | None, rows: int | None) -> RunEvent:
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE", _PRODUCER)
        return RunEvent(
            eventType=state,
            eventTime=datetime.now(UTC).isoformat(),
            producer=_PRODUCER,
            run=self._run(namespace, error),
            job=Job(namespace, f"{self.pipeline}.{self.job}"),
            inputs=[InputDataset(one.namespace, one.name) for one in self.inputs],
            outputs=[_output(self.output, rows)],
        )

    def _run(self, namespace: str, error: str | None) -> Run:
        parent = parent_run.ParentRunFacet(parent_run.Run(self.run_id), parent_run.Job(namespace, self.pipeline))
        message = {"errorMessage": error_message_run.ErrorMessageRunFacet(error, "python")} if error else {}
        return Run(self.own_id, facets={"parent": parent, **message})


def _output(output: Dataset, rows: int | None) -> OutputDataset:
    columns = [schema_dataset.SchemaDatasetFacetFields(c.name, type_name(c.table_type)) for c in output.columns]
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
