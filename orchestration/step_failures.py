"""What a step's failure says, read back from its event (`orchestration.components.failures` has written it)."""

from __future__ import annotations

from typing import Any

import dagster as dg


def failures(result: dg.ExecuteInProcessResult) -> list[dg.DagsterEvent]:
    """The failures of a run's steps."""
    return [event for event in result.all_events if event.is_step_failure]


def failure_text(event: dg.DagsterEvent) -> str:
    """The text of a step's failure, for people."""
    data = event.step_failure_data
    given = data.user_failure_data.description if data.user_failure_data else None
    return given or (data.error.message.strip() if data.error else "unknown")


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
