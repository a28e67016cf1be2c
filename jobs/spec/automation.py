"""The parts of a pipeline file about when runs start, how long steps may take, and how often they are retried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from jobs.spec.base import Spec
from resources.config_files.mistakes import Mistake, refuse, shown_value

_CRON = "write minute, hour, day, month and day of the week, like `*/5 * * * *` or `20 3 * * mon-fri`"


def cron_mistakes(text: str) -> Iterator[Mistake]:
    """The mistake in a cron expression, if there is one, also for what Dagster refuses: its schedules use an older copy
    of the same library."""
    from croniter import croniter

    fields = text.split()
    try:
        if len(fields) != 5 and not text.startswith("@"):
            raise ValueError(f"it has {len(fields)} field{'s' * (len(fields) != 1)}, not 5")
        found = croniter(text)
        found.get_next()
        if len(fields) == 5 and (why := _dagster_refuses(text.lower().split(), found.expanded)):
            raise ValueError(why)
    except ValueError as problem:
        why = str(problem).removeprefix(f"[{text}] ")
        yield Mistake((), f"{shown_value(text)} is not a valid schedule: {why}", _CRON)


def _dagster_refuses(fields: Sequence[str], expanded: Sequence[Sequence[object]]) -> str | None:
    """Why Dagster's copy refuses what ours accepts.

    Args:
        fields: the five, in small letters.
        expanded: the values of each field.
    """
    _, _, day, _, weekday = fields
    _, _, days, months, _ = expanded
    if any(field.startswith("r") for field in fields):
        return "`r` is another time whenever it is read"
    if "w" in day:
        return "the nearest weekday (`w`) is not supported"
    if days in ([30], [31]) and months == [2]:
        return f"there is no {days[0]} February"
    if "/" in weekday and {"#", "l"} & {*weekday}:
        return "steps (`/`) do not go with one weekday of the month (`#`, `l`)"
    return None


def _cron(text: str) -> str:
    refuse(cron_mistakes(text))
    return text


Cron = Annotated[str, AfterValidator(_cron)]


class Trigger(Spec):
    """When the lag sensor starts a run, in addition to the schedule."""

    records: int | None = Field(None, gt=0, description="start when this many records wait in Kafka")
    age_seconds: int | None = Field(None, gt=0, description="start when records have waited this long")

    def own_mistakes(self) -> Iterator[Mistake]:
        if self.records is None and self.age_seconds is None:
            yield Mistake((), "it says nothing", "name `records`, `age_seconds` or both")


class Retry(Spec):
    """How a step is retried after a transient failure. Terminal failures are never retried."""

    max_retries: int = Field(3, ge=0, description="how many more tries a step has after the first one")
    delay_seconds: float = Field(
        10, gt=0, description="before the first retry; doubles each time, up to 10 minutes, with random jitter"
    )
