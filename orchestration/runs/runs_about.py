"""Which runs are about a pipeline: those with its tag, and those launched on its assets, as every backfill is.

Maintenance and verification have tags of their own: the pipeline's runs go on beside them, table by table.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import dagster as dg

from orchestration.names import (
    BACKFILL_TAG,
    MAINTENANCE_TAG,
    PIPELINE_TAG,
    VERIFY_TAG,
    all_pools,
    landing_key,
    table_key,
)

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

NOT_BEGUN = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING]
IN_PROGRESS = [*NOT_BEGUN, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
UNDER_WAY = [dg.DagsterRunStatus.QUEUED, *IN_PROGRESS]
_TAGS = (PIPELINE_TAG, MAINTENANCE_TAG, VERIFY_TAG)


def under_way(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    return list(instance.get_runs(dg.RunsFilter(statuses=UNDER_WAY)))


def keys_of(name: str, spec: PipelineSpec) -> set[dg.AssetKey]:
    """The assets that the pipeline's runs land and merge."""
    return {landing_key(name), *(table_key(table) for table in spec.tables)}


def to_process(run: dg.DagsterRun, name: str, keys: Collection[dg.AssetKey]) -> set[dg.AssetKey]:
    """Which of these assets of the pipeline the run lands or merges. One that was launched on assets has no tag of
    ours."""
    if run.asset_selection:
        return set(keys) & run.asset_selection
    return set(keys) if run.tags.get(PIPELINE_TAG) == name else set()


def is_about(run: dg.DagsterRun, name: str, keys: Collection[dg.AssetKey]) -> bool:
    """Whether the run lands, merges, maintains or verifies any of these assets of the pipeline."""
    checked = {check.asset_key for check in run.asset_check_selection or ()}
    return pipeline_tag(run) == name or bool(to_process(run, name, keys) or checked.intersection(keys))


def is_backfill(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether the run was launched as a backfill, or executes one again, which has no tag once the backfill is over."""
    root = instance.get_run_by_id(run.root_run_id) if run.root_run_id else None
    return BACKFILL_TAG in run.tags or (root is not None and BACKFILL_TAG in root.tags)


def pipeline_tag(run: dg.DagsterRun) -> str | None:
    """The pipeline that a run names in a tag."""
    return next((run.tags[tag] for tag in _TAGS if tag in run.tags), None)


def runs_to_end(instance: dg.DagsterInstance, name: str, spec: PipelineSpec) -> list[dg.DagsterRun]:
    """Runs under way that are about the pipeline, or hold a pool that the next run needs."""
    pools = instance.event_log_storage.get_concurrency_infos(sorted(all_pools(name, spec)))
    holding = {slot.run_id for info in pools.values() for slot in info.claimed_slots}
    keys = keys_of(name, spec)
    return [run for run in under_way(instance) if run.run_id in holding or is_about(run, name, keys)]
