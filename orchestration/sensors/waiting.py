"""How much waits for a pipeline and for how long, and whether that is enough to start a run. Pure decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import Field

from jobs import offsets
from jobs.offsets import Offsets, TopicPartition
from jobs.spec.automation import Trigger
from orchestration.doubled import doubled
from orchestration.sensors.cursor import SensorCursor

# When a tick first saw records (seconds since 1970), and the end of the log then (sum of all partitions' offsets).
Mark = tuple[float, int]
# Marks at the most. Records that later ticks find count as seen with the last mark.
_MOST_MARKS = 100
# Seconds after a run was requested until the next one is, while nothing moves. They double with each further request.
_FIRST_PAUSE = 30.0
# Longest of these pauses in seconds.
_LONGEST_PAUSE = 3600.0


class LagCursor(SensorCursor):
    """What a lag sensor remembers between ticks and over restarts.

    Attributes:
        ends: last stable offsets at the last tick, in the compact form.
        landing, tables: what waited then, in offsets.
        lags: of each topic of which something waited then: for landing, and for the slowest table.
        waiting_marks: a mark for each tick that found more records, as long as they wait.
        tables_marks: the same for landed records that some table lacks.
        requests: how many runs were requested since something was last landed or merged, or records began to wait.
        requested_at: when the newest of them was, in seconds.
    """

    ends: str = Field("{}")
    landing: int = 0
    tables: int = 0
    lags: dict[str, tuple[int, int]] = Field(default_factory=dict)
    waiting_marks: list[Mark] = Field(default_factory=list)
    tables_marks: list[Mark] = Field(default_factory=list)
    requests: int = 0
    requested_at: float = 0.0

    @property
    def waiting_since(self) -> float | None:
        """When the oldest record that waits was first seen, in seconds; None while nothing waits."""
        return self.waiting_marks[0][0] if self.waiting_marks else None

    @property
    def tables_since(self) -> float | None:
        return self.tables_marks[0][0] if self.tables_marks else None

    @property
    def seen(self) -> Waiting:
        """What waited at the last tick; without batches."""
        return Waiting(offsets.decode(self.ends), self.landing, self.tables, lags=self.lags)


@dataclass(frozen=True)
class Waiting:
    """What waits at one moment, in offsets: in Kafka for landing, and landed for the slowest table.

    Attributes:
        batches: number of the newest landed batch; with `for_each` the sum over all topics.
        lags: of each topic of which something waits: for landing, and for the slowest table.
    """

    ends: Offsets
    landing: int
    tables: int
    batches: int = 0
    lags: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def topics(self) -> set[str]:
        """Those whose records wait for landing."""
        return {topic for topic, (landing, _) in self.lags.items() if landing}

    def by_topic(self) -> dict[str, Waiting]:
        """What waits of each topic alone."""
        ends = defaultdict[str, dict[TopicPartition, int]](dict)
        for tp, offset in self.ends.items():
            ends[tp.topic][tp] = offset
        lags = {topic: {topic: self.lags[topic]} if topic in self.lags else {} for topic in ends}
        return {topic: Waiting(own, *_sums(lags[topic]), lags=lags[topic]) for topic, own in ends.items()}


def waiting(ends: Offsets, first: Offsets, landed: Offsets, merged: Offsets, batches: int = 0) -> Waiting:
    """What waits, from the ends of the log, the landed offsets, and those that all tables have (the consumer group)."""
    reached = {tp: landed.get(tp, first.get(tp, 0)) for tp in ends}
    lags: dict[str, tuple[int, int]] = {}
    for tp, end in ends.items():
        landing, tables = max(0, end - reached[tp]), max(0, reached[tp] - merged.get(tp, first.get(tp, 0)))
        if landing or tables:
            before = lags.get(tp.topic, (0, 0))
            lags[tp.topic] = before[0] + landing, before[1] + tables
    return Waiting(ends, *_sums(lags), batches, lags)


def _sums(lags: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    return sum(landing for landing, _ in lags.values()), sum(tables for _, tables in lags.values())


def observe(cursor: LagCursor, seen: Waiting, now: float) -> LagCursor:
    """The cursor after a tick: since when something waits."""
    end, last = sum(seen.ends.values()), cursor.seen
    landed = end - seen.landing
    before = sum(last.ends.values()) - last.landing
    stands = (landed, landed - seen.tables) == (before, before - last.tables)
    # What kept a table, or another topic, behind need not concern them.
    come = seen.topics - last.topics
    return LagCursor(
        ends=offsets.encode(seen.ends),
        landing=seen.landing,
        tables=seen.tables,
        lags=dict(seen.lags),
        waiting_marks=_marks(cursor.waiting_marks, landed, end, now),
        tables_marks=_marks(cursor.tables_marks, landed - seen.tables, landed, now),
        requests=cursor.requests if stands and not come else 0,
        # A clock that was set back makes no pause longer.
        requested_at=min(cursor.requested_at, now),
    )


def _marks(before: list[Mark], reached: int, end: int, now: float) -> list[Mark]:
    """The marks of what waits between `reached` and `end`, the oldest first."""
    # Without a topic that was deleted, the end is lower than it was.
    marks = [(min(at, now), min(to, end)) for at, to in before if min(to, end) > reached]
    if end > (marks[-1][1] if marks else reached):
        marks = [*marks[:-1], (marks[-1][0], end)] if len(marks) == _MOST_MARKS else [*marks, (now, end)]
    return marks


def reason_to_run(trigger: Trigger, seen: Waiting, cursor: LagCursor, now: float) -> str | None:
    """Why a run is due by the pipeline's thresholds; None where it is not."""
    if trigger.records is not None and seen.landing >= trigger.records:
        return f"{seen.landing} records wait, {trigger.records} start a run"
    limit = trigger.age_seconds
    if limit is None:
        return None
    if cursor.waiting_since is not None and now - cursor.waiting_since >= limit:
        return f"{seen.landing} records have been waiting for {now - cursor.waiting_since:.0f} s"
    if cursor.tables_since is not None and now - cursor.tables_since >= limit:
        return f"a table has been {seen.tables} landed records behind for {now - cursor.tables_since:.0f} s"
    return None


def reason_to_wait(cursor: LagCursor, now: float) -> str | None:
    """Why a run that is due starts later: those before it have failed, or had nothing to do. None: it may start."""
    if not cursor.requests:
        return None
    left = cursor.requested_at + doubled(_FIRST_PAUSE, cursor.requests - 1, _LONGEST_PAUSE) - now
    runs = "the last run that was started" if cursor.requests == 1 else f"the last {cursor.requests} runs"
    return f"{runs} landed and merged nothing: the next one starts in {left:.0f} s" if left > 0 else None


def requested(cursor: LagCursor, now: float) -> LagCursor:
    """The cursor after a request: a table that stays behind gets the next run only after the trigger's age again."""
    marks = [(now, end) for _, end in cursor.tables_marks[-1:]]
    return cursor.model_copy(update={"tables_marks": marks, "requests": cursor.requests + 1, "requested_at": now})


def moved(before: LagCursor, after: LagCursor) -> bool:
    """Whether there is anything new to show: records have come, or have been landed or merged."""
    return (before.ends, before.landing, before.tables) != (after.ends, after.landing, after.tables)
