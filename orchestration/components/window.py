"""Does a run advance, or does it replay, and which hours? A pure decision (`docs/replay-and-backfill.md`).

Progress never comes from the partition: an hour only says what a replay is about. So a plain run on a past hour can
mean nothing, and is refused rather than guessed at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.batch import LandedBatch
from orchestration.components.config import Mode
from resources.errors import ConfigurationError

_HOUR = "%Y-%m-%dT%H"


@dataclass(frozen=True)
class Window:
    """The hours of a run, ``[start, end)`` in UTC.

    Attributes:
        lands: the landing's step is part of the run: it reads from Kafka hours that are before the oldest landed batch.
    """

    start: datetime
    end: datetime
    lands: bool = True

    def is_before(self, landed: Sequence[LandedBatch]) -> bool:
        """Whether these hours end before the oldest landed batch."""
        return bool(landed) and self.end.timestamp() * 1000 <= landed[0].batch.planned_at

    @property
    def options(self) -> str:
        """The hours as options of `batchmerge replay`, which names the last hour."""
        return f"--from {self.start:{_HOUR}} --to {self.end - timedelta(hours=1):{_HOUR}}"

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"


def replays(mode: Mode, is_backfill: bool, window: Window | None, asked_at: datetime) -> bool:
    """True: merge again what was landed in the window. False: go on from the committed state.

    Several hours are a replay in any case: no plain run has more than one.

    Args:
        is_backfill: the run was launched as a backfill, or executes one again.
        asked_at: when the run was asked for; it may have waited in the queue past its hour.

    Raises:
        ConfigurationError: a plain run on a past hour, or a replay without hours.
    """
    several = window is not None and window.end - window.start > timedelta(hours=1)
    if mode == "replay" or (mode == "auto" and (is_backfill or several)):
        if window is None:
            raise ConfigurationError("a replay needs hours", remedy="launch it on the partitions to replay")
        return True
    if window is not None and not window.start <= asked_at < window.end:
        raise ConfigurationError(
            f"a plain run goes on from the committed state, and does not process the hours {window}",
            remedy="launch the current hour to go on. To merge again what was landed in these hours, launch them with "
            "`mode: replay` in the options of each step (Dagster launches one hour as a plain run, and several as a "
            f"backfill, which needs no option), or run `batchmerge replay <pipeline> {window.options}`",
        )
    return False
