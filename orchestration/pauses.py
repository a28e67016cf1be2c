"""What a person has paused: a pipeline, or one of its tables.

Kept in Dagster's instance, beside the runs: it outlives a reload and a restart, every process of the instance sees it
at once, and the pipeline's file stays as it is. `paused: true` in the file is another switch, for whoever writes files:
while it is on nothing starts by itself, and a launch by hand still works. What a person has paused is not launched by
hand either, unless the launch says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.storage.tags import PARENT_RUN_ID_TAG, RETRY_NUMBER_TAG, SCHEDULE_NAME_TAG, SENSOR_NAME_TAG
from pydantic import BaseModel, ConfigDict

from orchestration.names import ALTHOUGH_PAUSED_TAG, landing_key, table_key
from resources.errors import ConfigurationError, TerminalError

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.tables import Table

_PREFIX = "batchmerge/paused"
# A run with one of these tags was not launched by hand.
_BY_THEMSELVES = (SCHEDULE_NAME_TAG, SENSOR_NAME_TAG, RETRY_NUMBER_TAG)


class Pause(BaseModel):
    """By whom, and since when."""

    model_config = ConfigDict(frozen=True)
    by: str
    since: datetime

    def __str__(self) -> str:
        return f"paused by {self.by} since {self.since:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True)
class Pauses:
    """The pauses of one pipeline at one moment; `whole` is the pause of the pipeline itself."""

    pipeline: str
    whole: Pause | None = None
    tables: Mapping[dg.AssetKey, Pause] = field(default_factory=dict)

    def reason(self, table: dg.AssetKey | None = None) -> str | None:
        """Why the pipeline (or this table of it) is not to go on; None where it may."""
        if self.whole:
            return f"{self.pipeline} is {self.whole} (`batchmerge resume {self.pipeline}`)"
        if table and table in self.tables:
            name = "/".join(table.path)
            return f"{name} is {self.tables[table]} (`batchmerge resume {self.pipeline} {name}`)"
        return None


def read_pauses(instance: dg.DagsterInstance, pipeline: str, spec: PipelineSpec) -> Pauses:
    return pauses_of(instance, pipeline, map(table_key, spec.tables))


def pauses_of(instance: dg.DagsterInstance, pipeline: str, tables: Iterable[dg.AssetKey]) -> Pauses:
    """As `read_pauses`, for these tables."""
    keys = {key: _stored_as(pipeline, key) for key in (None, *tables)}
    stored = instance.daemon_cursor_storage.get_cursor_values(set(keys.values()))
    found = {key: Pause.model_validate_json(text) for key, name in keys.items() if (text := stored.get(name))}
    return Pauses(pipeline, found.pop(None, None), {key: pause for key, pause in found.items() if key})


def pause(instance: dg.DagsterInstance, pipeline: str, spec: PipelineSpec, table: Table | None, by: str) -> Pause:
    """Pauses the pipeline, or one table. If it is paused already, the first pause stays.

    Raises:
        ConfigurationError: one table of several that commit together.
    """
    if table and spec.commit == "together":
        raise ConfigurationError(
            "its tables are committed together, so one alone cannot be paused",
            where=f"pipeline {pipeline}",
            remedy=f"pause them all: `batchmerge pause {pipeline}`",
        )
    key = table_key(table) if table else None
    before = read_pauses(instance, pipeline, spec)
    if known := before.tables.get(key) if key else before.whole:
        return known
    made = Pause(by=by, since=datetime.now(UTC).replace(microsecond=0))
    instance.daemon_cursor_storage.set_cursor_values({_stored_as(pipeline, key): made.model_dump_json()})
    _show(instance, pipeline, key, str(made))
    return made


def resume(instance: dg.DagsterInstance, pipeline: str, spec: PipelineSpec, table: Table | None, by: str) -> list[str]:
    """Resumes this table, or the pipeline with all of its tables. Returns a line for each pause that has ended."""
    before = read_pauses(instance, pipeline, spec)
    ended: dict[dg.AssetKey | None, Pause] = dict(before.tables.items())
    if before.whole:
        ended[None] = before.whole
    if table:
        ended = {key: one for key, one in ended.items() if key == table_key(table)}
    if not ended:
        return []
    # There is no way to delete: an empty text stands for none.
    instance.daemon_cursor_storage.set_cursor_values({_stored_as(pipeline, key): "" for key in ended})
    for key in ended:
        _show(instance, pipeline, key, f"resumed by {by}")
    return [f"{'/'.join(key.path) if key else pipeline}, {one}" for key, one in ended.items()]


class Paused(TerminalError):
    """A launch by hand of what a person has paused."""


def require_not_paused(pauses: Pauses) -> None:
    """Refuses launches by hand of a paused pipeline.

    Raises:
        Paused: the pipeline is paused.
    """
    if reason := pauses.reason():
        raise Paused(
            reason.partition(" (`")[0],
            remedy=f"`batchmerge resume {pauses.pipeline}`; or run it once with `--although-paused` (in Dagster with "
            f"the tag `{ALTHOUGH_PAUSED_TAG}: true`)",
        )


def holds_step(pauses: Pauses, table: dg.AssetKey | None, tags: Mapping[str, str], asked_at: datetime) -> str | None:
    """Why a step must do nothing although its run has begun; None: it goes on.

    Replays do not call this: somebody has started them on purpose, perhaps while the pipeline is paused.

    Args:
        asked_at: when the run was asked for, which may have been before the pause.

    Raises:
        Paused: the run was launched by hand after the pause, without the tag that allows it.
    """
    reason = None if tags.get(ALTHOUGH_PAUSED_TAG) == "true" else pauses.reason(table)
    if reason and pauses.whole and asked_at > pauses.whole.since and launched_by_hand(tags):
        require_not_paused(pauses)
    return reason


def launched_by_hand(tags: Mapping[str, str]) -> bool:
    """Whether a person has launched the run with these tags: no schedule, sensor or retry."""
    # Dagster copies the tags of a run to the one that executes it again; only a retry of its own has a number.
    again = PARENT_RUN_ID_TAG in tags and RETRY_NUMBER_TAG not in tags
    return again or not any(tag in tags for tag in _BY_THEMSELVES)


def _stored_as(pipeline: str, key: dg.AssetKey | None) -> str:
    return "/".join([_PREFIX, pipeline, *(key.path if key else ())])


def _show(instance: dg.DagsterInstance, pipeline: str, key: dg.AssetKey | None, what: str) -> None:
    """Shows it on the asset's page, among its events."""
    observation = dg.AssetObservation(key or landing_key(pipeline), description=what, metadata={"state": what})
    instance.report_runless_asset_event(observation)
