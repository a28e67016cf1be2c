"""Whether a continuous run is to be started, and which of its steps are to wait. Pure decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestration.doubled import doubled
from orchestration.sensors.cursor import SensorCursor

# Seconds after which another run replaces a run: Dagster's page of a run shows all its events, and gets slow.
RENEW = 3300.0
# A run that ends or dies by itself within this many seconds counts as a failed start, and is followed by a pause.
_SHORT_LIFE = 60.0
# Seconds that a step waits after its first failure. The pause doubles with each further failure.
_FIRST_PAUSE = 5.0
# Longest pause in seconds after a failure.
LONGEST_PAUSE = 300.0
# A failure this many seconds after the one before counts as a first failure again.
_FORGOTTEN = 1800.0
State = Literal["waits", "runs", "ended", "died", "cancelled"]
# Stands in for the name of a step: the run itself, which ended or whose process did.
RUN = ""


def retry_at(failed_at: float, times: int) -> float:
    """When to try again after a failure, which was one of `times` in a row."""
    return failed_at + doubled(_FIRST_PAUSE, times - 1, LONGEST_PAUSE)


class Failed(BaseModel):
    """The failures of one step, in one run after the other.

    Attributes:
        run: the run of the newest failure.
        at: when that was, in seconds since the epoch.
        times: number of failures in a row.
        text: the newest error.
    """

    model_config = ConfigDict(frozen=True)
    run: str
    at: float
    times: int
    text: str

    @property
    def not_before(self) -> float:
        return retry_at(self.at, self.times)


class ContinuousCursor(SensorCursor):
    """What the sensor remembers: the last failures by step."""

    failed: dict[str, Failed] = Field(default_factory=dict)


@dataclass(frozen=True)
class Newest:
    """The newest continuous run, also one that never began.

    Attributes:
        began: seconds since the epoch; None where it has not begun.
        ended: likewise.
        file: hash of the pipeline file with which it was started.
        failures: by step its error, after the last retry.
        partly: a step has ended in order (a pause), while another one still works or hangs.
    """

    run: str
    state: State
    began: float | None
    ended: float | None
    file: str
    failures: Mapping[str, str]
    partly: bool = False


def remember(cursor: ContinuousCursor, newest: Newest | None, now: float) -> ContinuousCursor:
    """The cursor with the failures of this run added, each once."""
    # A clock that was set back makes no pause longer.
    failed = {step: one.model_copy(update={"at": min(one.at, now)}) for step, one in cursor.failed.items()}
    if newest is None:
        return ContinuousCursor(failed=failed)
    found, ended = dict(newest.failures), newest.ended or now
    if newest.state in ("ended", "died") and not found and ended - (newest.began or ended) < _SHORT_LIFE:
        found[RUN] = "it ended soon after its start"
    for step, text in found.items():
        before = failed.get(step)
        if before is None or before.run != newest.run:
            again = before is not None and now - before.at < _FORGOTTEN
            times = before.times + 1 if before and again else 1
            at = min(ended, now) if step == RUN else now
            failed[step] = Failed(run=newest.run, at=at, times=times, text=text[:500])
    return ContinuousCursor(failed=failed)


def reason_to_start(cursor: ContinuousCursor, newest: Newest | None, file: str, now: float) -> str | None:
    """Why to start a run now; None: the newest one goes on, or is about to begin."""
    if newest is None:
        return "there is no continuous run yet"
    of_run = cursor.failed.get(RUN)
    reasons = {
        f"run {newest.run[:8]} has ended": newest.state in ("ended", "died", "cancelled")
        and (of_run is None or of_run.run != newest.run or now >= of_run.not_before),
        f"a step of run {newest.run[:8]} has failed": newest.state == "runs" and bool(newest.failures),
        f"steps of run {newest.run[:8]} have ended": newest.state == "runs" and newest.partly,
        "the pipeline file has changed": newest.state == "runs" and newest.file != file,
        f"run {newest.run[:8]} is old": newest.state == "runs" and now - (newest.began or now) > RENEW,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def steps_that_wait(cursor: ContinuousCursor, steps: list[str], now: float) -> dict[str, Failed]:
    """Steps that have to wait after their last failure."""
    return {step: found for step in steps if (found := cursor.failed.get(step)) and found.not_before > now}
