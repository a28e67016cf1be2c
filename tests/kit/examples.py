"""Hypothesis where an example runs real services: few examples, never shrunk."""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, Phase, settings

# What `hypothesis.seed` and dice draw differently in each session; workers of pytest have that of the session.
SEED = int(os.environ.setdefault("BATCHMERGE_SEED", str(random.randrange(10**6))))


def few(examples: int) -> settings:
    """Settings for few examples, the same ones in each session, without `hypothesis.seed`."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
