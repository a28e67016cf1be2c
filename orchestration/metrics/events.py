"""Samples of what runs did, from Dagster's events: the newest materialization, and totals since this process began.

Totals begin at zero with the process, which Prometheus takes for a restart; nothing else would have to be stored.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import dagster as dg

from orchestration.components.metadata import FAILED, HELD, ONLY, REPLAY_OF, STAGE, TOPICS
from orchestration.metrics import measures
from orchestration.metrics.assets import Assets, Labels
from orchestration.metrics.measures import Measure, Sample
from orchestration.names import LANDING
from orchestration.runs.runs_about import to_process

_OUTCOMES = ("read", "landed", "quarantined", "skipped", "filtered", "inserted", "updated", "deleted")
_ENDED = {
    dg.DagsterRunStatus.SUCCESS: "success",
    dg.DagsterRunStatus.FAILURE: "failure",
    dg.DagsterRunStatus.CANCELED: "canceled",
}
# Events that are read at a time.
_PAGE = 500
# Works of an asset that are known again; runs side by side report theirs in turns.
_RECENT = 32
# Some storages keep only whole seconds of the time when a run ended, and clocks of machines that end runs differ:
# queries begin this much earlier.
_COARSE = timedelta(minutes=1)
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass
class _CountedRuns:
    """The runs that were counted, as far as a later query can find them again."""

    since: datetime
    counted: dict[str, datetime] = field(default_factory=dict)

    def ended(self) -> dg.RunsFilter:
        return dg.RunsFilter(statuses=list(_ENDED), updated_after=self.since - _COARSE)

    def is_new(self, run_id: str, ended: datetime) -> bool:
        new = run_id not in self.counted
        self.since = max(self.since, ended)
        self.counted[run_id] = ended
        self.counted = {run: at for run, at in self.counted.items() if at >= self.since - 2 * _COARSE}
        return new


@dataclass
class EventTotals:
    """Counts what runs did to assets, from the first call of `samples` on."""

    instance: dg.DagsterInstance
    _totals: dict[tuple[Measure, tuple[str, ...]], float] = field(default_factory=lambda: defaultdict(float))
    _newest: dict[Labels, float] = field(default_factory=dict)
    _seen: dict[dg.AssetKey, int] = field(default_factory=dict)
    _works: dict[dg.AssetKey, deque[tuple[str, object]]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_RECENT))
    )
    _start: int | None = None
    _runs: _CountedRuns | None = None

    def samples(self, assets: Assets) -> Iterator[Sample]:
        """Reads new events, and gives the samples of all that is known."""
        keys = [key for key in assets.keys if key not in self._seen]
        if self._start is None:
            self._start = max(self._last(keys).values(), default=0)
        self._begin(assets, keys, self._start)
        # One query for all assets, since few of hundreds of tables have changed.
        for key, last in self._last(assets.keys).items():
            if last > self._seen[key]:
                self._follow(assets, key)
        self._follow_runs(assets)
        # A total that appeared with its first event would hide that one: `increase` compares with the value before.
        totals = dict.fromkeys(_from_the_start(assets), 0.0) | self._totals
        of_assets = set(assets.labels)
        yield from (Sample(measures.LAST_SUCCESS, one, at) for one, at in self._newest.items() if one in of_assets)
        yield from (Sample(measure, values, value) for (measure, values), value in totals.items())

    def _last(self, keys: Sequence[dg.AssetKey]) -> dict[dg.AssetKey, int]:
        found = self.instance.event_log_storage.get_latest_materialization_storage_ids(keys)
        return {key: number for key, number in found.items() if number is not None}

    def _begin(self, assets: Assets, keys: Sequence[dg.AssetKey], start: int) -> None:
        """Starts with assets that were unknown so far: what was done before is no part of the totals."""
        self._seen |= dict.fromkeys(keys, start)
        if keys:
            for key, entry in self.instance.event_log_storage.get_latest_materialization_events(keys).items():
                if entry:
                    self._take_success(assets, key, entry.timestamp, _values(entry))

    def _follow(self, assets: Assets, key: dg.AssetKey) -> None:
        while True:
            wanted = dg.AssetRecordsFilter(key, after_storage_id=self._seen[key])
            page = self.instance.fetch_materializations(wanted, limit=_PAGE, ascending=True).records
            for record in page:
                values = _values(record.event_log_entry)
                self._seen[key] = record.storage_id
                self._take_success(assets, key, record.timestamp, values)
                # A backfill reports the same work once for every hour that it was asked for.
                work, counted = (record.run_id, values.get("commit id") or repr(values)), self._works[key]
                if work not in counted:
                    self._take_work(assets, key, values)
                    counted.append(work)
            if len(page) < _PAGE:
                return

    def _take_success(self, assets: Assets, key: dg.AssetKey, at: float, values: Mapping[str, object]) -> None:
        """Notes a success: of a step of many topics for all that it was for, and does not name as failed."""
        if HELD in values:
            return
        failed, only = values.get(FAILED), values.get(ONLY)
        named = failed if isinstance(failed, dict) else {}
        of_step = {t: one for t, one in assets.steps.get(key, {}).items() if not isinstance(only, list) or t in only}
        succeeded = [labels for member, labels in of_step.items() if member not in named]
        for labels in [*succeeded, *([assets.own[key]] if key in assets.own else [])]:
            self._newest[labels] = max(at, self._newest.get(labels, 0.0))

    def _take_work(self, assets: Assets, key: dg.AssetKey, values: Mapping[str, object]) -> None:
        if key.path[0] == LANDING and REPLAY_OF in values:
            return
        if key in assets.own:
            self._add(assets.own[key], values)
            return
        by_topic = values.get(TOPICS)
        for row in by_topic.records if isinstance(by_topic, dg.TableMetadataValue) else ():
            if labels := assets.steps[key].get(str(row.data["topic"])):
                self._add(labels, row.data)

    def _add(self, labels: Labels, values: Mapping[str, object]) -> None:
        found: dict[tuple[Measure, tuple[str, ...]], object] = {(measures.BATCHES, labels): values.get("batches")}
        found |= {(measures.ROWS, (*labels, name)): values.get(name) for name in _OUTCOMES}
        stages = [name for name in values if name.startswith(STAGE)]
        found |= {(measures.STAGE_SECONDS, (*labels, n.removeprefix(STAGE))): values[n] for n in stages}
        for total, value in found.items():
            if isinstance(value, int | float):
                self._totals[total] += value

    def _follow_runs(self, assets: Assets) -> None:
        first = self._runs is None
        runs = self._runs = self._runs or _CountedRuns(self._last_end())
        keys = assets.by_pipeline()
        for record in self.instance.get_run_records(runs.ended()):
            if runs.is_new(record.dagster_run.run_id, record.update_timestamp) and not first:
                self._take_run(record.dagster_run, keys)

    def _last_end(self) -> datetime:
        """When the run that ended last did, by the storage's clock: PostgreSQL's is that of its server's time zone."""
        ended = dg.RunsFilter(statuses=list(_ENDED))
        newest = self.instance.get_run_records(ended, limit=1, order_by="update_timestamp")
        return newest[0].update_timestamp if newest else _LONG_AGO

    def _take_run(self, run: dg.DagsterRun, keys: Mapping[str, set[dg.AssetKey]]) -> None:
        if not (pipelines := [name for name in keys if to_process(run, name, keys[name])]):
            return
        again = sum(max(0, (step.attempts or 1) - 1) for step in self.instance.get_run_step_stats(run.run_id))
        for pipeline in pipelines:
            self._totals[measures.RUNS, (pipeline, _ENDED[run.status])] += 1
            self._totals[measures.RETRIES, (pipeline,)] += again


def _from_the_start(assets: Assets) -> Iterator[tuple[Measure, tuple[str, ...]]]:
    """The totals whose labels are known before anything has happened."""
    yield from ((measures.RUNS, (pipeline, status)) for pipeline in assets.pipelines for status in _ENDED.values())
    yield from ((measures.RETRIES, (pipeline,)) for pipeline in assets.pipelines)
    yield from ((measures.BATCHES, labels) for labels in assets.labels)


def _values(entry: dg.EventLogEntry) -> dict[str, object]:
    made = entry.asset_materialization
    return {name: value.value for name, value in made.metadata.items()} if made else {}
