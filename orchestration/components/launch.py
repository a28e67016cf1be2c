"""A run as its steps see it: the pipeline it is about, and whether it advances or replays."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from jobs.connections_file import load_connections
from jobs.members.members import Members
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from orchestration.components.config import Mode
from orchestration.components.window import Window, replays
from orchestration.names import ASKED_AT_TAG, landing_key, table_key
from orchestration.pauses import holds_step, read_pauses
from orchestration.runs.runs_about import is_backfill


@dataclass(frozen=True)
class Launch:
    """What every step of a pipeline starts from."""

    name: str
    spec: PipelineSpec

    def open(self, run_id: str) -> Pipeline:
        """The pipeline with its connections, in the name of this run."""
        return Pipeline(self.name, self.spec, load_connections(), run_id=run_id)

    def members(self, run_id: str, topics: Collection[str] = ()) -> Members:
        """With `for_each`: the members of the pipeline, or only those of these topics, in the name of this run."""
        return Members(self.name, self.spec, load_connections(), run_id, topics)

    def replayed_window(self, context: dg.AssetExecutionContext, mode: Mode) -> Window | None:
        """The hours to replay; None: the run advances.

        Raises:
            ConfigurationError: a plain run on a past hour.
        """
        window = _window(context, landing_key(self.name))
        backfill = is_backfill(context.instance, context.run)
        return window if replays(mode, backfill, window, asked_at(context)) else None

    def reason_to_stop(
        self, context: dg.AssetExecutionContext | dg.OpExecutionContext, table: Table | None = None
    ) -> str | None:
        """Why the step must stop: somebody has paused the pipeline or the table. None: it goes on.

        Raises:
            Paused: the run was launched by hand although somebody has paused the pipeline.
        """
        pauses = read_pauses(context.instance, self.name, self.spec)
        key = table_key(table) if table else None
        return holds_step(pauses, key, context.run.tags, asked_at(context))


def _window(context: dg.AssetExecutionContext, landing: dg.AssetKey) -> Window | None:
    if not (context.has_partition_key or context.has_partition_key_range):
        return None
    found = context.partition_time_window  # spans the range of a single-run backfill
    lands = landing in context.job_def.asset_layer.executable_asset_keys
    return Window(found.start.astimezone(UTC), found.end.astimezone(UTC), lands)


def asked_at(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> datetime:
    """When the run was requested; of a re-executed run, when the first one was."""
    run = context.run
    if ASKED_AT_TAG in run.tags:
        return datetime.fromisoformat(run.tags[ASKED_AT_TAG])
    # By its first event. PostgreSQL keeps the time when a run was created in the time zone of its server.
    events = context.instance.event_log_storage.get_logs_for_run(run.root_run_id or run.run_id, limit=1)
    return datetime.fromtimestamp(events[0].timestamp, UTC) if events else datetime.now(UTC)
