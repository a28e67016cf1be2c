"""Members (`for_each`, `new_tables`) that hung are suspended: later runs leave them out for a while, so that the others
of their entry have the step for themselves. Kept in Dagster's instance, beside the pauses: it is written as soon as a
table has hung, and every run sees it at once."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import dagster as dg

from resources.errors import BatchmergeError, TimeLimitReached

# On disk by this name.
_PREFIX = "batchmerge/resting"
# One that has hung, and held up the others, is left out for this many times as long.
_FACTOR = 3


class _Suspension(NamedTuple):
    """In seconds since the epoch."""

    since: float
    until: float

    def is_on(self, now: float) -> bool:
        # A clock that was set back makes none longer.
        return self.since <= now < self.until


@dataclass(frozen=True)
class SuspendedMembers:
    """The suspended members of an entry's step, or of the landing's.

    Attributes:
        key: the asset of the step that works on them. Only who holds its pool writes.
    """

    instance: dg.DagsterInstance
    key: dg.AssetKey

    def now(self) -> dict[str, BatchmergeError]:
        """The members that are suspended now, each with the error that says so."""
        return {member: _left_out(member, one) for member, one in self._stored().items() if one.is_on(time.time())}

    def record(
        self,
        done: Collection[str],
        problems: Mapping[str, BatchmergeError],
        held_up_others: Collection[str] = (),
        others: int = 0,
    ) -> None:
        """Records the results of a try at once. What hung is suspended from now on if it held up others. Where most
        hang, it is their system that does, and may be back in a moment.

        Args:
            done: these are suspended no longer.
            problems: by member.
            held_up_others: those that failed in an earlier try in which others succeeded.
            others: how many others have answered, and are to be done yet.
        """
        before, now = self._stored(), time.time()
        after = {member: one for member, one in before.items() if member not in done}
        hung = {member: seconds for member, problem in problems.items() if (seconds := _seconds_hung(problem))}
        for member, seconds in hung.items():
            if len(hung) <= len(done) + others or member in held_up_others or member in before:
                after[member] = _Suspension(now, now + _FACTOR * seconds)
        if after != before:
            self.instance.daemon_cursor_storage.set_cursor_values({self._name: json.dumps(after)})

    def _stored(self) -> dict[str, _Suspension]:
        """By member the last one, until a try succeeds."""
        text = self.instance.daemon_cursor_storage.get_cursor_values({self._name}).get(self._name)
        return {member: _Suspension(*one) for member, one in json.loads(text or "{}").items()}

    @property
    def _name(self) -> str:
        return "/".join([_PREFIX, *self.key.path])


def _seconds_hung(problem: BatchmergeError) -> float | None:
    seconds = problem.facts.get("seconds") if isinstance(problem, TimeLimitReached) else None
    return seconds if isinstance(seconds, int | float) else None


def _left_out(member: str, suspension: _Suspension) -> TimeLimitReached:
    return TimeLimitReached(
        f"left out until {datetime.fromtimestamp(suspension.until, UTC):%H:%M:%S} UTC: it hung and held up the others",
        where=member,
        remedy="run `batchmerge run <pipeline>/<topic>` to try it now",
    )
