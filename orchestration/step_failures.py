"""What a step's failure says, read back from its event (`orchestration.components.failures` has written it)."""

from __future__ import annotations

from typing import Any

import dagster as dg


def failure_text(event: dg.DagsterEvent) -> str:
    """What a step's failure says, for people."""
    data = event.step_failure_data
    given = data.user_failure_data.description if data.user_failure_data else None
    return given or (data.error.message.strip() if data.error else "unknown")


def failure_facts(event: dg.DagsterEvent) -> dict[str, Any]:
    """Its class, where it was, the remedy and so on, by name; nothing of a failure that is none of ours."""
    given = event.step_failure_data.user_failure_data
    return {name: value.value for name, value in given.metadata.items()} if given else {}


def is_transient(event: dg.DagsterEvent) -> bool:
    """Whether the same step may succeed later."""
    return str(failure_facts(event).get("class", "")).startswith("transient")
