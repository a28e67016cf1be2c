"""Which assets a schedule or sensor may run now: none of a paused pipeline, and none that a run still works on.

While a run lands, no other one starts: two at once would be safe, but useless. After its landing another run may land
new records, and merge them into the tables that no earlier run still has to merge. So a table whose system hangs delays
neither landing, nor other tables, nor the schedule. It keeps one run busy until its `time_limit_seconds`; other runs
leave it out meanwhile (their tags say so), and the first run after that merges all that the table lacks. At most one
run hangs for each table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from jobs.spec.pipeline import PipelineSpec
from orchestration.files import paused_in_file
from orchestration.names import (
    COMMAND_TAG,
    COMMAND_WAITS,
    CONTINUOUS_TAG,
    LEFT_OUT_TAG,
    MAINTENANCE_TAG,
    landing_key,
    op_name,
    table_key,
)
from orchestration.pauses import Pauses, read_pauses
from orchestration.runs.runs_about import UNDER_WAY, is_backfill, keys_of, to_process, under_way

_ENDS = {dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.STEP_SKIPPED}
# The most characters of a text in a run's tag: PostgreSQL indexes the values of tags, and refuses the run if one has
# more than 2,700 bytes.
_MOST_IN_TAG = 600


@dataclass(frozen=True)
class Free:
    """What a schedule or a sensor may start now.

    Attributes:
        hold: why to start nothing; None: something is free.
        left_out: assets to leave out, each with the run that still works on it, or with its pause.
        assets: the assets to run; None: all.
    """

    hold: str | None = None
    left_out: Mapping[dg.AssetKey, str] | None = None
    assets: list[dg.AssetKey] | None = None

    @property
    def reasons(self) -> str:
        """Why assets are left out; empty: none are. A long text is cut, and a hash stands for the rest."""
        text = "; ".join(f"{'/'.join(key.path)}: {why}" for key, why in (self.left_out or {}).items())
        if len(text) <= _MOST_IN_TAG:
            return text
        rest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{text[:_MOST_IN_TAG]}… and more ({len(self.left_out or ())} in all, {rest})"

    def is_what_was_free(self, run: dg.DagsterRun) -> bool:
        """Whether the run has left out the same assets, for the same reasons."""
        same = {*(run.asset_selection or ())} == {*(self.assets or ())}
        return same and run.tags.get(LEFT_OUT_TAG, "") == self.reasons

    def request(self, hour: str | None, tags: Mapping[str, str]) -> dg.RunRequest:
        """The request of a run of the free assets, for this hour."""
        more = {LEFT_OUT_TAG: self.reasons} if self.left_out else {}
        # No run key: the key of a failed run would never be launched again.
        return dg.RunRequest(partition_key=hour, tags={**tags, **more}, asset_selection=self.assets)


def paused_reason(pauses: Pauses, spec: PipelineSpec) -> str | None:
    """Why nothing of the pipeline starts by itself; None: it is not paused."""
    return pauses.reason() or paused_in_file(pauses.pipeline, spec)


def free_to_advance(instance: dg.DagsterInstance, name: str, spec: PipelineSpec) -> Free:
    """What a schedule or a sensor may advance now.

    A backfill, which may take hours, is no obstacle, nor is a command that waits for a table: pools keep the two apart,
    table by table.
    """
    pauses = read_pauses(instance, name, spec)
    if paused := paused_reason(pauses, spec):
        return Free(hold=paused)
    landing, tables = landing_key(name), [table_key(table) for table in spec.tables]
    busy = still_to_do(instance, name, spec, replays=False)
    if landing in busy:
        return Free(hold=busy[landing])
    left_out = {key: why for key in tables if (why := pauses.reason(key) or busy.get(key))}
    if not left_out:
        return Free()
    if spec.commit == "together":
        left_out = dict.fromkeys(tables, next(iter(left_out.values())))
    return Free(left_out=left_out, assets=[landing, *(key for key in tables if key not in left_out)])


def busy_reason(instance: dg.DagsterInstance, name: str, spec: PipelineSpec, *, has_file: bool = True) -> str | None:
    """Which run or backfill works on the pipeline's tables; None: there is none.

    A queued one goes on from what it finds when it starts, and where no daemon runs it never does.

    Args:
        has_file: False: nothing starts, ends or pauses the pipeline any more.
    """
    begun = (run for run in runs_of(instance, name, spec) if run.status != dg.DagsterRunStatus.QUEUED)
    return next((_named(run, name, has_file) for run in begun), None)


def maintenance_reason(instance: dg.DagsterInstance, name: str) -> str | None:
    """Which run maintains the pipeline's tables, or is queued to; None: there is none that is younger than a day.

    An older one may have died where nobody can see it.
    """
    since = datetime.now(UTC) - timedelta(days=1)
    filters = dg.RunsFilter(statuses=UNDER_WAY, tags={MAINTENANCE_TAG: name}, created_after=since)
    runs = instance.get_runs(filters, limit=1)
    return next((_named(run, run.job_name) for run in runs), None)


def still_to_do(
    instance: dg.DagsterInstance, name: str, spec: PipelineSpec, *, replays: bool = True
) -> dict[dg.AssetKey, str]:
    """The assets that runs under way still have to process, each with its run.

    Args:
        replays: backfills count too, and commands that wait for their turn.
    """
    keys, found = keys_of(name, spec), dict[dg.AssetKey, str]()
    for run in under_way(instance):
        beside = is_backfill(instance, run) or run.tags.get(COMMAND_TAG) == COMMAND_WAITS
        selected = set() if beside and not replays else _in_steps(run, name, to_process(run, name, keys))
        if selected and run.status == dg.DagsterRunStatus.STARTED:
            entries = instance.all_logs(run.run_id, of_type=_ENDS)
            ended = {entry.dagster_event.step_key for entry in entries if entry.dagster_event}
            selected = {key for key in selected if op_name(name, key) not in ended}
        found.update(dict.fromkeys(selected, _named(run, name)))
    return found


def _in_steps(run: dg.DagsterRun, name: str, keys: set[dg.AssetKey]) -> set[dg.AssetKey]:
    """Those of the assets that the run has a step for: a retry from failure has only the steps that failed."""
    steps = run.step_keys_to_execute
    # The steps of continuous runs and of commands have other names than those of the assets.
    if steps is None or not run.tags.keys().isdisjoint({CONTINUOUS_TAG, COMMAND_TAG}):
        return keys
    return {key for key in keys if op_name(name, key) in steps}


def runs_of(instance: dg.DagsterInstance, name: str, spec: PipelineSpec) -> list[dg.DagsterRun]:
    """Runs under way, backfills too, that land or merge the pipeline's tables."""
    keys = keys_of(name, spec)
    return [run for run in under_way(instance) if to_process(run, name, keys)]


def _named(run: dg.DagsterRun, name: str, has_file: bool = True) -> str:
    if CONTINUOUS_TAG in run.tags and not has_file:
        return f"run {run.run_id} goes on until it is cancelled in Dagster: {name} has no file that could end it"
    if CONTINUOUS_TAG in run.tags:
        return f"run {run.run_id[:8]} of {name} runs until it is paused (`batchmerge pause {name}`)"
    return f"run {run.run_id[:8]} of {name} is {run.status.value.lower()}"
