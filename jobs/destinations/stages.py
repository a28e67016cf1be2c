"""How long each stage of a merge took, for logs and metadata."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Stages:
    """Seconds per stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, stage: str, work: Callable[[], T]) -> T:
        """Does the work and records its seconds."""
        began = time.monotonic()
        result = work()
        self.seconds[stage] = round(time.monotonic() - began, 3)
        return result
