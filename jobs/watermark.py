"""What is known of all records so far: up to when a table is valid in record time (VTTS and `caught_up_through`,
`docs/operations.md`), and what a truncated source has taken out of it.

Times are milliseconds since the epoch, as Kafka has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jobs import offsets
from jobs.offsets import Offsets, Ranges, TopicPartition

RECORD_TIMES = "record-times"
# How far clocks may be apart.
_CLOCKS_APART = 24 * 3600 * 1000


@dataclass(frozen=True)
class Watermark:
    """How far the records of a pipeline have been read, in record time.

    Attributes:
        record_times: maximum record timestamp so far per topic-partition; None while none was seen.
        caught_up_through: VTTS, except that a partition read to its end counts as of the time when Kafka was asked for
            it: an idle partition does not look stale. Goes back only as the clock does.
        truncated_below: the largest `changes.order_by` of a truncation (`envelope.truncates: apply`): nothing of a
            smaller value, or of none, is in the table, whenever it comes. Never goes back while `changes` means the
            same.
    """

    record_times: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    caught_up_through: int | None = None
    truncated_below: int | None = None

    @property
    def vtts(self) -> int | None:
        """Valid-through timestamp: absent until every partition has been seen."""
        return _minimum(list(self.record_times.values()))

    def advance(
        self, ranges: Ranges, seen: Mapping[TopicPartition, int], log_ends: Offsets, asked_at: int
    ) -> Watermark:
        """The watermark after a batch.

        Args:
            seen: maximum credible record timestamp per partition in this batch (`latest_credible`).
            log_ends: last stable offset per partition, from which the batch was planned.
            asked_at: when Kafka was asked for them. No record is younger, whatever its producer says.
        """
        times = dict.fromkeys(ranges) | dict(self.record_times.items())
        for tp, newest in seen.items():
            known = times.get(tp)
            times[tp] = newest if known is None else max(known, newest)
        for tp in ranges:
            if (time := times[tp]) is not None and time > asked_at:
                times[tp] = asked_at
        reached = [asked_at if r.end >= log_ends.get(tp, r.end) else times[tp] for tp, r in ranges.items()]
        now = [min(time, asked_at) for time in (self.caught_up_through, _minimum(reached)) if time is not None]
        return replace(self, record_times=times, caught_up_through=max(now, default=None))

    def truncated(self, below: int | None) -> Watermark:
        """The same after a truncation; None: there was none."""
        known = [order for order in (self.truncated_below, below) if order is not None]
        return replace(self, truncated_below=max(known, default=None))

    def to_properties(self, prefix: str) -> dict[str, str]:
        known = {tp: time for tp, time in self.record_times.items() if time is not None}
        numbers = {
            "vtts": self.vtts,
            "caught-up-through": self.caught_up_through,
            "truncated-below": self.truncated_below,
        }
        said = {prefix + name: str(number) for name, number in numbers.items() if number is not None}
        return {prefix + RECORD_TIMES: offsets.encode(known), **said}

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], prefix: str, partitions: Offsets) -> Watermark:
        """The inverse of `to_properties`; `partitions` are those of the committed offsets."""

        def times() -> dict[TopicPartition, int | None]:
            known = offsets.decode(properties[prefix + RECORD_TIMES])
            return {tp: known.get(tp) for tp in partitions}

        caught_up, below = (properties.get(prefix + name) for name in ("caught-up-through", "truncated-below"))
        return cls(offsets.Later(times), int(caught_up) if caught_up else None, int(below) if below else None)


def latest_credible(now: int) -> int:
    """The latest time that a record may have. A later one says nothing of time: its producer counts in another unit."""
    return now + _CLOCKS_APART


def _minimum(times: list[int | None]) -> int | None:
    known = [time for time in times if time is not None]
    return min(known) if known and len(known) == len(times) else None
