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
        """Does the work and adds its seconds to those of the stage, without those of other stages inside it."""
        began, before = time.monotonic(), sum(self.seconds.values())
        result = work()
        inside = sum(self.seconds.values()) - before
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + time.monotonic() - began - inside, 3)
        return result
