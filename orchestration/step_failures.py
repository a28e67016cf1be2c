"""What the failure of a step, or of a run, says: read back from its event."""

from __future__ import annotations

from typing import Any

import dagster as dg
from dagster._core.events import JobFailureData


def failures(result: dg.ExecuteInProcessResult) -> list[dg.DagsterEvent]:
    """The failures of a run's steps."""
    return [event for event in result.all_events if event.is_step_failure]


def failure_text(event: dg.DagsterEvent) -> str:
    """The text of a step's failure, for people."""
    data = event.step_failure_data
    given = data.user_failure_data.description if data.user_failure_data else None
    return given or (data.error.message.strip() if data.error else "unknown")


def run_failure_text(instance: dg.DagsterInstance, run_id: str, event: dg.DagsterEvent) -> str:
    """Why a run has failed of which no step has: its process is gone, it took too long, or it could not begin."""
    data = event.event_specific_data
    error = data.error if isinstance(data, JobFailureData) else None
    if error:
        # Without its text, which may hold anything.
        return f"unexpected {error.cls_name or 'error'}: its page in Dagster has the traceback"
    said = (event.message or "").strip()
    # These are Dagster's words where an event before says why.
    if not said or said.startswith("This run has been marked as failed from outside"):
        said = _newest_error(instance, run_id) or said
    return said or "its page in Dagster says why"


def _newest_error(instance: dg.DagsterInstance, run_id: str) -> str | None:
    """What Dagster could not do, as it says itself, and the class of the error."""
    events = [entry.dagster_event for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)]
    for event in reversed(events):
        if event and (error := event.engine_event_data.error):
            return f"{(event.message or 'unexpected').rstrip('. ')} ({error.cls_name})"
    return None


def failure_facts(event: dg.DagsterEvent) -> dict[str, Any]:
    """The facts of a failure by name: class, where, remedy and others; none of a failure that is not our error."""
    given = event.step_failure_data.user_failure_data
    return {name: value.value for name, value in given.metadata.items()} if given else {}


def traceback_of(event: dg.DagsterEvent) -> str | None:
    """Of a bug in a step, whose text the failure leaves out; None: the step has failed by one of our errors."""
    error = event.step_failure_data.error
    return error.cause.to_string() if error and error.cause and not failure_facts(event) else None


def is_transient(event: dg.DagsterEvent) -> bool:
    """Whether the same step may succeed later."""
    return str(failure_facts(event).get("class", "")).startswith("transient")
