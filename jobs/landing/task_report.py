"""The report of a landing task to the run: counts, findings, and the files that it wrote. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from jobs.added import Added
from jobs.batch import Batch, Counts, Moves
from jobs.decode.registered import Ids
from jobs.iceberg.new_files import NewFile
from jobs.offsets import OffsetRange, Ranges, TopicPartition
from jobs.schema.found_fields import FoundFields
from resources.errors import InvariantBroken

T = TypeVar("T")


@dataclass(frozen=True)
class RecordsRead:
    """The records read of one topic-partition, counted before decoding.

    Attributes:
        newest: their newest credible timestamp, in milliseconds; None if no time is credible.
        offsets: from the first record to after the last.
    """

    records: int
    newest: int | None
    offsets: OffsetRange

    def __add__(self, other: RecordsRead) -> RecordsRead:
        one, two = self.offsets, other.offsets
        offsets = OffsetRange(min(one.start, two.start), max(one.end, two.end))
        times = [time for time in (self.newest, other.newest) if time is not None]
        return RecordsRead(self.records + other.records, max(times, default=None), offsets)


@dataclass(frozen=True)
class RecordOutcomes(Added):
    """The outcomes of records, each counted independently."""

    landed: int = 0
    quarantined: int = 0
    filtered: int = 0

    @classmethod
    def of(cls, op: pa.Array, wanted: pa.Array, bad: pa.Array) -> RecordOutcomes:
        """Those of one batch of rows: wanted rows, dead letters, and rows with another op (filtered)."""
        others = pc.and_(pc.is_valid(op), pc.invert(wanted))
        return cls(*(mask.true_count for mask in (wanted, bad, others)))


@dataclass(frozen=True)
class TaskReport:
    """The findings and results of one task, or of all tasks.

    Attributes:
        read: the records read by topic-partition, whatever their outcome.
        fields: fields of the records that have no column.
        schema_ids: of the records.
        names: of new tables that the records bring (`jobs.landing.new_tables`), each with its first `i`.
        columns: by table name, the columns that have values for the first time.
        files: that were written.
        truncated_below: the largest `order_by` value of truncations among the records (`jobs.watermark`).
        moves: the number of primary-key changes among the records.
    """

    read: Mapping[TopicPartition, RecordsRead] = field(default_factory=dict)
    fields: FoundFields = field(default_factory=FoundFields)
    outcomes: RecordOutcomes = field(default_factory=RecordOutcomes)
    files: tuple[NewFile, ...] = ()
    names: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, frozenset[str]] = field(default_factory=dict)
    schema_ids: Ids = field(default_factory=dict)
    truncated_below: int | None = None
    moves: Moves = field(default_factory=Moves)

    @property
    def records(self) -> int:
        return sum(one.records for one in self.read.values())

    @property
    def newest(self) -> dict[TopicPartition, int]:
        return {tp: one.newest for tp, one in self.read.items() if one.newest is not None}

    def __getstate__(self) -> dict[str, object]:
        """Pickles arrays: thousands of topic-partitions as objects take longer than a small batch's records."""
        return {**vars(self), "read": _to_arrays(self.read)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state, read=_from_arrays(state["read"]))

    def __add__(self, other: TaskReport) -> TaskReport:
        read = dict(self.read)
        for tp, more in other.read.items():
            read[tp] = read[tp] + more if tp in read else more
        names = {name: min(i, self.names.get(name, i)) for name, i in other.names.items()}
        below = [one.truncated_below for one in (self, other) if one.truncated_below is not None]
        return TaskReport(
            read,
            self.fields + other.fields,
            self.outcomes + other.outcomes,
            self.files + other.files,
            {**self.names, **names},
            joined([self.columns, other.columns]),
            joined([self.schema_ids, other.schema_ids]),
            max(below, default=None),
            self.moves + other.moves,
        )


def _to_arrays(read: Mapping[TopicPartition, RecordsRead]) -> tuple[Sequence[Any], ...]:
    rows = ((*tp, one.records, one.newest, one.offsets.start, one.offsets.end) for tp, one in read.items())
    return tuple(zip(*rows, strict=True))


def _from_arrays(arrays: tuple[Sequence[Any], ...]) -> dict[TopicPartition, RecordsRead]:
    return {
        TopicPartition(topic, partition): RecordsRead(records, newest, OffsetRange(start, end))
        for topic, partition, records, newest, start, end in zip(*arrays, strict=True)
    }


def joined(found: Iterable[Mapping[str, frozenset[T]]]) -> dict[str, frozenset[T]]:
    """The union of each name's sets."""
    united: dict[str, frozenset[T]] = {}
    for one in found:
        united |= {name: united.get(name, frozenset()) | own for name, own in one.items()}
    return united


def sum_up(reports: Iterable[TaskReport], ranges: Ranges, where: str) -> TaskReport:
    """The sum of all tasks' reports.

    Args:
        ranges: the ranges that the tasks had to read.

    Raises:
        InvariantBroken: two tasks have read the same offsets, or one has read offsets outside the ranges.
    """
    reports, parts = list(reports), defaultdict[TopicPartition, list[RecordsRead]](list)
    for report in reports:
        for tp, one in report.read.items():
            parts[tp].append(one)
    nothing = OffsetRange(0, 0)
    for tp, read in parts.items():
        _check_once(tp, [one.offsets for one in read], ranges.get(tp, nothing), where)
    whole = sum((replace(report, read={}) for report in reports), TaskReport())
    return replace(whole, read={tp: reduce(add, read) for tp, read in parts.items()})


def _check_once(tp: TopicPartition, read: list[OffsetRange], wanted: OffsetRange, where: str) -> None:
    read = sorted(read, key=lambda offsets: offsets.start)
    inside = read[0].start >= wanted.start and read[-1].end <= wanted.end
    if not inside or any(one.end > other.start for one, other in pairwise(read)):
        raise InvariantBroken(
            f"tasks read offsets of {tp} twice, or outside the batch; nothing was published",
            where=where,
            remedy="run again; if it happens again, report it with the Spark server's log",
        )


def check(batch: Batch, readings: int, where: str, found: TaskReport, added_rows: int, skip: bool = False) -> Counts:
    """The batch's counts, if they add up: records read, their outcomes, and rows of the new files.

    Args:
        readings: upper bound of the records.
        found: the report of all tasks; records were counted before they were decoded, and each outcome on its own.
        added_rows: rows of the data files that were written, from their metadata.
        skip: bad records are not landed (`on_bad_record: skip`).

    Raises:
        InvariantBroken: the counts do not add up; nothing was published.
    """
    counts = Counts(
        read=found.records,
        landed=found.outcomes.landed,
        quarantined=0 if skip else found.outcomes.quarantined,
        filtered=found.outcomes.filtered,
        gaps=readings - found.records,
        skipped=found.outcomes.quarantined if skip else 0,
    )
    expected = counts.landed + counts.quarantined
    if not counts.balanced or counts.gaps < 0 or added_rows != expected:
        raise InvariantBroken(
            f"{batch}: {counts.read} records were read, {counts.landed} landed, {counts.quarantined} quarantined, "
            f"{counts.skipped} skipped, {counts.filtered} filtered and {added_rows} written; nothing was published",
            where=where,
            remedy="run again; if it happens again, report it with the Spark server's log",
        )
    return counts
