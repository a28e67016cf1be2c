"""Samples of the tables' current state, from the same look as `batchmerge status`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from orchestration.metrics import measures
from orchestration.metrics.measures import Sample
from orchestration.status.values import PipelineStatus, Status, TableStatus


def table_samples(status: Status) -> Iterator[Sample]:
    """What is unknown now has no sample: a gap in the plot instead of a zero."""
    yield Sample(measures.DAEMON, (), float(status.daemon))
    for pipeline in status.pipelines:
        yield from _pipeline(pipeline)


def _pipeline(pipeline: PipelineStatus) -> Iterator[Sample]:
    yield Sample(measures.PAUSED, (pipeline.name,), float(pipeline.paused))
    if pipeline.problem:
        # There are no tables to report where not even the pipeline can be opened.
        yield Sample(measures.UP, (pipeline.name, landing_label()), 0.0)
    for table in pipeline.tables:
        # `status` names the intermediate table, too; here one label stands for all landings.
        name = landing_label(table.topic) if table.is_landing else table.name
        yield from _table((pipeline.name, name), table)


def landing_label(topic: str | None = None) -> str:
    """The label of the landing; with `for_each` each topic has one."""
    return f"landing {topic}" if topic else "landing"


def _table(labels: tuple[str, str], table: TableStatus) -> Iterator[Sample]:
    yield Sample(measures.UP, labels, float(table.problem is None))
    known = {
        measures.LAG: table.lag,
        measures.LAG_SECONDS: table.seconds_behind,
        measures.BATCH: table.batch,
        measures.VTTS: table.vtts.timestamp() if table.vtts else None,
        measures.CAUGHT_UP: table.caught_up_through.timestamp() if table.caught_up_through else None,
        measures.DEAD_LETTERS: table.refused if table.dead_letters is None else table.dead_letters,
    }
    for measure, value in known.items():
        if value is not None:
            yield Sample(measure, labels, float(value))
