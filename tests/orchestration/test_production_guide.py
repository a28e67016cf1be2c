"""What docs/kubernetes gives to Dagster's chart is what `dagster.yaml` says everywhere else."""

from __future__ import annotations

import re
from typing import Any

import yaml

from orchestration.cli.instance import SETTINGS
from tests.kit.guides import PRODUCTION

VALUES = PRODUCTION.parent / "kubernetes" / "values.yaml"


def _snake(node: Any) -> Any:
    """The chart's names as Dagster's: `maxRetries` is `max_retries`."""
    if isinstance(node, dict):
        return {re.sub(r"[A-Z]", lambda c: f"_{c[0].lower()}", name): _snake(value) for name, value in node.items()}
    return [_snake(one) for one in node] if isinstance(node, list) else node


def test_helm_values_are_those_of_the_instance() -> None:
    values, settings = _snake(yaml.safe_load(VALUES.read_text())), yaml.safe_load(SETTINGS.read_text())
    # The chart has a switch per part, and ticks that have only been started.
    assert values["concurrency"].pop("enabled")
    assert values["retention"].pop("enabled")
    for kind in ("schedule", "sensor"):
        assert values["retention"][kind]["purge_after_days"].pop("started") == -1
    # The chart has no word for it.
    settings["run_monitoring"].pop("max_runtime_seconds")

    assert values["concurrency"] == settings["concurrency"]
    assert values["dagster_daemon"]["run_monitoring"] == settings["run_monitoring"]
    assert values["dagster_daemon"]["run_retries"] == settings["run_retries"]
    for kind in ("sensors", "schedules"):
        assert values["dagster_daemon"][kind] == settings[kind]
    assert values["retention"] == settings["retention"]
    assert values["telemetry"] == settings["telemetry"]
