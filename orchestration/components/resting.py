"""Tables and topics of many (`for_each`, `new_tables`) that hung rest: later runs leave them out for a while, so that
the others of their entry have the step for themselves. Kept in Dagster's instance, beside the pauses: it is written as
soon as a table has hung, and every run sees it at once."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import dagster as dg

from resources.errors import BatchmergeError, TimeLimitReached

_PREFIX = "batchmerge/resting"
# One that has hung, and held up the others, is left out for this many times as long.
_RESTS = 3


class _Rest(NamedTuple):
    """In seconds since the epoch."""

    since: float
    until: float

    def is_on(self, now: float) -> bool:
        # A clock that was set back makes no rest longer.
        return self.since <= now < self.until


@dataclass(frozen=True)
class Rests:
    """The rests of an entry's tables, or of the landing's topics.

    Attributes:
        key: the asset of the step that works on them. Only who holds its pool writes.
    """

    instance: dg.DagsterInstance
    key: dg.AssetKey

    def now(self) -> dict[str, BatchmergeError]:
        """The topics that rest now, each with the error that says so."""
        return {topic: _left_out(topic, rest) for topic, rest in self._stored().items() if rest.is_on(time.time())}

    def note(
        self,
        done: Collection[str],
        problems: Mapping[str, BatchmergeError],
        in_the_way: Collection[str] = (),
        others: int = 0,
    ) -> None:
        """Notes the results of a try at once. What hung rests from now on if it held up others. Where most hang, it is
        their system that does, and may be back in a moment.

        Args:
            done: these rest no longer.
            problems: by topic.
            in_the_way: those of them beside which others were done in another try.
            others: how many others have answered, and are to be done yet.
        """
        before, now = self._stored(), time.time()
        after = {topic: rest for topic, rest in before.items() if topic not in done}
        hung = {topic: seconds for topic, problem in problems.items() if (seconds := _seconds_hung(problem))}
        for topic, seconds in hung.items():
            if len(hung) <= len(done) + others or topic in in_the_way or topic in before:
                after[topic] = _Rest(now, now + _RESTS * seconds)
        if after != before:
            self.instance.daemon_cursor_storage.set_cursor_values({self._name: json.dumps(after)})

    def _stored(self) -> dict[str, _Rest]:
        """By topic its last rest, until a try succeeds."""
        text = self.instance.daemon_cursor_storage.get_cursor_values({self._name}).get(self._name)
        return {topic: _Rest(*rest) for topic, rest in json.loads(text or "{}").items()}

    @property
    def _name(self) -> str:
        return "/".join([_PREFIX, *self.key.path])


def _seconds_hung(problem: BatchmergeError) -> float | None:
    seconds = problem.facts.get("seconds") if isinstance(problem, TimeLimitReached) else None
    return seconds if isinstance(seconds, int | float) else None


def _left_out(topic: str, rest: _Rest) -> TimeLimitReached:
    return TimeLimitReached(
        f"left out until {datetime.fromtimestamp(rest.until, UTC):%H:%M:%S} UTC: it hung and held up the others",
        where=topic,
        remedy="run `batchmerge run <pipeline>/<topic>` to try it now",
    )
