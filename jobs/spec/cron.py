"""Checks cron expressions with the library that Dagster's schedules use, which would refuse the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator

from resources.config_files.mistakes import Mistake, refuse, shown_value

_REMEDY = "write minute, hour, day, month and day of the week, like `*/5 * * * *` or `20 3 * * mon-fri`"


def cron_mistakes(text: str) -> Iterator[Mistake]:
    """The mistake in a cron expression, if there is one."""
    from croniter import croniter

    fields = text.split()
    try:
        if len(fields) != 5 and not text.startswith("@"):
            raise ValueError(f"it has {len(fields)} field{'s' * (len(fields) != 1)}, not 5")
        croniter(text).get_next()
    except ValueError as problem:
        why = str(problem).removeprefix(f"[{text}] ")
        yield Mistake((), f"{shown_value(text)} is no time for a schedule: {why}", _REMEDY)


def _checked(text: str) -> str:
    refuse(cron_mistakes(text))
    return text


Cron = Annotated[str, AfterValidator(_checked)]
