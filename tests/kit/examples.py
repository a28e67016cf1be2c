"""Hypothesis where an example runs real services: few examples, the same each time, never shrunk."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings


def few(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
