"""What records, batches and merges cost, of kept measurements; and how near that is to others. Pure.

Each cost is a line through a small and a large measurement: the fixed part, and that of a million records.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np

from tests.benchmarks._report import Measure, Results, Unit
from tests.kit.many_topics import MANY

APPEND, UPSERT, CLICKHOUSE = "append, Iceberg", "upsert, Iceberg", "ClickHouse"
_MILLION = 1_000_000
# Topics with new records in the smaller run of `many_topics`.
_SOME = 3
_RUN = f"`batchmerge run`, {MANY} topics, iceberg, "
_TASKS, _SENT = "tasks, whole cores", "merge into ClickHouse (append)"
_INSERTED = "{:,} landed rows into ClickHouse, append"
_THREE = " records into three tables, CPU"
_APPENDED = "append of 5,000,000 records, default settings, "


@dataclass(frozen=True)
class Costs:
    """CPU seconds, as measured."""

    results: Results

    @property
    def start(self) -> float:
        """Of a run."""
        return self._figure("`batchmerge run` of 1,000 records, CPU")

    @property
    def few(self) -> float:
        """Of few records: their landing, and their merge into a table."""
        all_, some = (self._figure(f"{_RUN}{count} with new records, CPU") for count in (MANY, _SOME))
        return (all_ - some) / (MANY - _SOME)

    @property
    def formats(self) -> dict[str, float]:
        """Of a million records, by format: from Kafka into a table of mode `append`."""
        begin, end = "1,000,000 records, ", ", CPU"
        found = (one.what for one in self.results.parts["formats"].measures if one.what.endswith(end))
        return {what[len(begin) : -len(end)]: self._figure(what) - self.start for what in found}

    def merges(self, into: str) -> dict[int, float]:
        """Of merges of so many changes, ascending; landing is left out, but for the few."""
        if into == APPEND:
            return {0: self.few}
        if into == UPSERT:
            some = self._figure("10,000 random keys into 1,000,000 rows, CPU")
            return {0: self.few, 10_000: some, _MILLION: self._two_upsert_tables("5,000,000") / 2}
        return {n: self._figure(_INSERTED.format(n), "CPU s") for n in (1_000, _MILLION)}

    def merge(self, into: str, changes: float) -> float:
        """Of one of so many changes; above a million in proportion."""
        known = self.merges(into)
        return float(np.interp(changes, [*known], [*known.values()])) * max(1.0, changes / _MILLION)

    @property
    def memory(self) -> float:
        """GB for a core."""
        return self._figure(_APPENDED + "most memory (PSS)") / 1000 / self.cores

    @property
    def cores(self) -> int:
        """That were measured on."""
        return int(self.results.parts["append"].machine.split()[0])

    def compared(self) -> tuple[Compared, ...]:
        """With measurements that no cost was taken from."""
        json, appended = self.formats["JSON"], self._measure(_APPENDED + "CPU").turns
        one = median(self._measure(f"1,000,000{_THREE}").beside["one table"])
        none, new = (self._figure(f"{_RUN}{what}, CPU") for what in ("0 with new records", "all new"))
        batch = self.results.parts["scaling"].measures[0].what.partition(", landing")[0]
        millions = int(batch.removesuffix(" records").replace(",", "")) / _MILLION
        landing, sent = (self._figure(f"{batch}, {what}: {_TASKS}") / millions for what in ("landing", _SENT))
        upserts, two = 2 * self.merge(UPSERT, _MILLION), self._two_upsert_tables("1,000,000")
        # What ClickHouse itself does is in no task.
        inserts = self.merge(CLICKHOUSE, _MILLION) - self._bare_insert
        return (
            Compared("append of 5,000,000 records (`append`)", self.start + 5 * json, 5 * median(appended)),
            Compared("append of 1,000,000 records (`fan_out`)", self.start + json, one),
            Compared("two upsert tables more, 1,000,000 records (`fan_out`)", upserts, two),
            Compared(f"run of {MANY} topics, few records in each (`many_topics`)", none + MANY * self.few, new),
            Compared(f"landing of a million of {batch}, tasks (`scaling`)", json, landing),
            Compared(f"merge of a million of {batch} into ClickHouse, tasks, no insert (`scaling`)", inserts, sent),
        )

    @property
    def _bare_insert(self) -> float:
        """Of a million rows into ClickHouse, of the server and of a process that sends what it has in memory."""
        return median(next(iter(self._measure(_INSERTED.format(_MILLION), "CPU s").beside.values())))

    def _two_upsert_tables(self, records: str) -> float:
        """Of a million records in a run of so many, beside a table of mode `append`."""
        three = self._measure(f"{records}{_THREE}")
        return median(three.turns) - median(three.beside["one table"])

    def _figure(self, what: str, unit: Unit | None = None) -> float:
        return median(self._measure(what, unit).turns)

    def _measure(self, what: str, unit: Unit | None = None) -> Measure:
        measures = (one for part in self.results.parts.values() for one in part.measures)
        return next(one for one in measures if one.what == what and unit in (None, one.unit))


@dataclass(frozen=True)
class Compared:
    """CPU seconds, predicted and measured."""

    what: str
    predicted: float
    measured: float

    @property
    def off(self) -> float:
        """How many times too much or too little."""
        return max(self.predicted / self.measured, self.measured / self.predicted)
