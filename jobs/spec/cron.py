"""Cron expressions, judged as Dagster judges them when it loads a schedule: what is wrong here it would refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from resources.config_files.mistakes import Mistake, refuse, shown_value

_SHORT = ("@hourly", "@midnight", "@daily", "@weekly", "@monthly", "@yearly", "@annually")
_DAYS_OF_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ITEM = re.compile(r"(?:\*|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>[0-9]{1,4}))?")
_LAST = "l"
_REMEDY = "write minute, hour, day, month and day of the week, like `*/5 * * * *` or `20 3 * * mon-fri`"


@dataclass(frozen=True)
class _Field:
    """One of the five: its bounds, and its values' other names in their order, from the lowest on."""

    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()
    is_day: bool = False

    def values(self, text: str) -> set[int]:
        """The values that it stands for.

        Raises:
            ValueError: it is not right.
        """
        if text == "?" and self.is_day:
            return self._range(self.least, self.most)
        return {value for item in text.split(",") for value in self._item(item)}

    def _item(self, item: str) -> set[int]:
        found = _ITEM.fullmatch(item)
        if found is None or (found["step"] and int(found["step"]) == 0):
            raise ValueError(f"{shown_value(item)} is not possible as {self.name}")
        step = int(found["step"] or 1)
        if found["low"] is None:
            return self._range(self.least, self.most, step)
        low = self._value(found["low"])
        if found["high"] is None:
            return self._range(low, self.most, step) if found["step"] else {low}
        return self._range(low, self._value(found["high"]), step)

    def _range(self, low: int, high: int, step: int = 1) -> set[int]:
        """With the end before the beginning it goes over the end of the field; both the same is all of it."""
        if low == high:
            low, high = self.least, self.most
        if low > high:
            return {*range(low, self.most + 1, step), *range(self.least, high + 1, step)}
        return set(range(low, high + 1, step))

    def _value(self, text: str) -> int:
        if text in self.words:
            return self.least + self.words.index(text)
        if not re.fullmatch("[0-9]{1,4}", text):
            raise ValueError(f"{shown_value(text)} is not possible as {self.name}")
        if not self.least <= int(text) <= self.most:
            raise ValueError(f"{text} as {self.name} is not between {self.least} and {self.most}")
        return int(text)


_MINUTE, _HOUR = _Field("minute", 0, 59), _Field("hour", 0, 23)
_DAY = _Field("day", 1, 31, is_day=True)
_MONTH = _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"))
_WEEKDAY = _Field("day of the week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"), is_day=True)


def cron_mistakes(text: str) -> Iterator[Mistake]:
    """What is wrong with a cron expression, if anything is."""
    try:
        if text.lower() not in _SHORT:
            _judge(text.lower().split())
    except ValueError as problem:
        yield Mistake((), f"{shown_value(text)} is no time for a schedule: {problem}", _REMEDY)


def _judge(fields: list[str]) -> None:
    if len(fields) != 5:
        raise ValueError(f"it has {len(fields)} field{'s' * (len(fields) != 1)}, not 5")
    minute, hour, day, month, weekday = fields
    _MINUTE.values(minute)
    _HOUR.values(hour)
    # The last day of a month is in every month, as the first one is.
    days = _DAY.values(",".join("1" if item == _LAST else item for item in day.split(",")))
    if all(min(days) > _DAYS_OF_MONTHS[number - 1] for number in _MONTH.values(month)):
        raise ValueError("no such day is in these months")
    _judge_weekday(weekday.split(","))


def _judge_weekday(items: list[str]) -> None:
    """A week of the month may follow the day: `fri#2`, `l5` for the last one; then it does for all of them."""
    weeks = [re.fullmatch(r"l([0-7])|([\w-]+)#[1-5]", item) for item in items]
    if any(weeks) and not all(weeks):
        raise ValueError("it names weekdays of the month beside those of each week")
    for item, week in zip(items, weeks, strict=True):
        _WEEKDAY.values(week[1] or week[2] if week else item)


def _checked(text: str) -> str:
    refuse(cron_mistakes(text))
    return text


Cron = Annotated[str, AfterValidator(_checked)]
