"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
# Only what hangs takes as long.
PATIENCE = 600


def until(wanted: Callable[[], T], log: Path | None = None, what: str = "sign of what was waited for") -> T:
    """Calls it until its result is true, and gives that; at the time limit fails with the end of the log."""
    end = time.monotonic() + PATIENCE
    while True:
        asked = time.monotonic()
        if found := wanted():
            return found
        now = time.monotonic()
        assert now < end, f"no {what} in time: {log.read_text()[-5000:] if log else ''}"
        # What is waited for needs the processor more than the question.
        time.sleep(max(0.05, 4 * (now - asked)))
