"""Which continuous run of a pipeline is current: the newest that has begun. Kept in Dagster's instance."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg

from orchestration.names import CONTINUOUS_TAG

_PREFIX = "batchmerge/continuous/"


def begin(instance: dg.DagsterInstance, pipeline: str, asked_at: datetime) -> None:
    """Makes this run the current one: runs that were requested earlier end.

    Two processes may do this at once: commits are exactly once without it.
    """
    if not is_replaced(instance, pipeline, asked_at):
        stored = asked_at.astimezone(UTC).isoformat()
        instance.daemon_cursor_storage.set_cursor_values({_PREFIX + pipeline: stored})


def is_replaced(instance: dg.DagsterInstance, pipeline: str, asked_at: datetime) -> bool:
    """Whether a run that was requested later has begun."""
    name = _PREFIX + pipeline
    text = instance.daemon_cursor_storage.get_cursor_values({name}).get(name)
    return bool(text) and datetime.fromisoformat(str(text)) > asked_at


def end(instance: dg.DagsterInstance, pipeline: str) -> None:
    """Ends the continuous run, if there is one: the pipeline file does not want it any more."""
    stays = dg.RunsFilter(tags={CONTINUOUS_TAG: pipeline}, statuses=[dg.DagsterRunStatus.STARTED])
    if instance.get_runs(stays, limit=1):
        begin(instance, pipeline, datetime.now(UTC))
