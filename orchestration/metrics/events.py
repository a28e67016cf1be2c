"""Samples of what runs did, from Dagster's events: the newest materialization, and totals since this process began.

Totals begin at zero with the process, which Prometheus takes for a restart; nothing else would have to be stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import dagster as dg

from orchestration.files import pipeline_names, pipeline_spec
from orchestration.metrics import measures
from orchestration.metrics.measures import Measure, Sample
from orchestration.metrics.tables import LANDING
from orchestration.names import PIPELINE_TAG, landing_key, table_key
from resources.errors import BatchmergeError

_OUTCOMES = ("read", "landed", "quarantined", "skipped", "filtered", "inserted", "updated", "deleted")
_ENDED = {
    dg.DagsterRunStatus.SUCCESS: "success",
    dg.DagsterRunStatus.FAILURE: "failure",
    dg.DagsterRunStatus.CANCELED: "canceled",
}
_STAGE = "seconds "
_PAGE = 500
_COARSE = timedelta(seconds=5)


def pipeline_assets() -> dict[tuple[str, str], dg.AssetKey]:
    """Pipeline and table (``landing``, or kind and table) to asset key. Files that are wrong have no tables here."""
    found = {}
    for name in pipeline_names():
        try:
            tables = pipeline_spec(name).tables
        except BatchmergeError:
            continue
        found[name, LANDING] = landing_key(name)
        found |= {(name, f"{table.kind} {table.table}"): table_key(table) for table in tables}
    return found


@dataclass
class _Runs:
    """The runs of a pipeline that were counted; some storages know when a run ended only to the second."""

    since: datetime
    counted: dict[str, datetime] = field(default_factory=dict)

    def ended(self, pipeline: str) -> dg.RunsFilter:
        return dg.RunsFilter(tags={PIPELINE_TAG: pipeline}, statuses=list(_ENDED), updated_after=self.since - _COARSE)

    def is_new(self, run_id: str, ended: datetime) -> bool:
        new = run_id not in self.counted
        self.since = max(self.since, ended)
        self.counted[run_id] = ended
        self.counted = {run: at for run, at in self.counted.items() if at >= self.since - 2 * _COARSE}
        return new


@dataclass
class EventTotals:
    """Follows the events of the assets that it is asked for, from when it is first asked for each."""

    instance: dg.DagsterInstance
    _totals: dict[tuple[Measure, tuple[str, ...]], float] = field(default_factory=lambda: defaultdict(float))
    _newest: dict[tuple[Measure, tuple[str, ...]], float] = field(default_factory=dict)
    _seen: dict[dg.AssetKey, int] = field(default_factory=dict)
    _runs: dict[str, _Runs] = field(default_factory=dict)

    def samples(self, assets: Mapping[tuple[str, str], dg.AssetKey]) -> Iterator[Sample]:
        """Reads what is new, and gives everything known.

        Args:
            assets: pipeline and table to the asset that stands for it.
        """
        for labels, key in assets.items():
            if key in self._seen:
                self._follow(labels, key)
            else:
                self._begin(labels, key)
        for pipeline in sorted({pipeline for pipeline, _ in assets}):
            self._follow_runs(pipeline)
        for (measure, values), value in {**self._totals, **self._newest}.items():
            yield Sample(measure, values, value)

    def _begin(self, labels: tuple[str, str], key: dg.AssetKey) -> None:
        newest = self.instance.fetch_materializations(key, limit=1).records
        self._seen[key] = newest[0].storage_id if newest else 0
        for record in newest:
            self._take_newest(labels, record)

    def _follow(self, labels: tuple[str, str], key: dg.AssetKey) -> None:
        while True:
            wanted = dg.AssetRecordsFilter(key, after_storage_id=self._seen[key])
            page = self.instance.fetch_materializations(wanted, limit=_PAGE, ascending=True).records
            counted = set[tuple[str, object]]()
            for record in page:
                self._seen[key] = record.storage_id
                self._take_newest(labels, record)
                # A backfill reports the same work once for every hour that it was asked for.
                work = (record.run_id, _values(record).get("commit id"))
                if work not in counted:
                    self._add(labels, _values(record))
                    counted.add(work)
            if len(page) < _PAGE:
                return

    def _add(self, labels: tuple[str, str], values: Mapping[str, object]) -> None:
        found: dict[tuple[Measure, tuple[str, ...]], object] = {(measures.BATCHES, labels): values.get("batches")}
        found |= {(measures.ROWS, (*labels, name)): values.get(name) for name in _OUTCOMES}
        stages = [name for name in values if name.startswith(_STAGE)]
        found |= {(measures.STAGE_SECONDS, (*labels, n.removeprefix(_STAGE))): values[n] for n in stages}
        for total, value in found.items():
            if isinstance(value, int | float):
                self._totals[total] += value

    def _take_newest(self, labels: tuple[str, str], record: dg.EventLogRecord) -> None:
        self._newest[measures.LAST_SUCCESS, labels] = record.timestamp

    def _follow_runs(self, pipeline: str) -> None:
        first = pipeline not in self._runs
        runs = self._runs.setdefault(pipeline, _Runs(datetime.now(UTC)))
        for record in self.instance.get_run_records(runs.ended(pipeline)):
            run = record.dagster_run
            if runs.is_new(run.run_id, record.update_timestamp) and not first:
                self._totals[measures.RUNS, (pipeline, _ENDED[run.status])] += 1
                steps = self.instance.get_run_step_stats(run.run_id)
                self._totals[measures.RETRIES, (pipeline,)] += sum(max(0, (step.attempts or 1) - 1) for step in steps)


def _values(record: dg.EventLogRecord) -> dict[str, object]:
    materialization = record.asset_materialization
    return {name: entry.value for name, entry in materialization.metadata.items()} if materialization else {}
