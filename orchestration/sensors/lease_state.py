"""The sensor of the tables' leases: shows what they say, and recovers what a dead run has left behind."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from jobs.behind import lag_behind
from jobs.connections_file import load_connections
from jobs.destinations.kind import Kind
from jobs.destinations.leases import LeaseState
from jobs.destinations.registry import kind_of
from jobs.offsets import Offsets, TopicPartition
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from jobs.time_limit import with_timeout
from orchestration.current_hour import hour_of
from orchestration.names import PIPELINE_TAG, table_key
from orchestration.pauses import read_pauses
from orchestration.runs import current_run
from orchestration.sensors.busy import paused_reason, still_to_do
from orchestration.sensors.leases import LeaseCursor, after_asking, is_due, left_behind
from resources.errors import BatchmergeError

# Seconds between two ticks.
_EVERY = 30
# Seconds to wait for one system. Dagster ends a tick after a minute.
_PATIENCE = 15
# Topic-partitions that the metadata shows, at most, and what of them, with types.
_MOST_ROWS = 200
_COLUMNS = {
    "topic-partition": "string",
    "endpoint": "string",
    "state": "string",
    "batch": "int",
    "first offset": "int",
    "last offset": "int",
    "lag": "int",
    "changed": "string",
}


def lease_sensors(
    name: str, spec: PipelineSpec, job: dg.UnresolvedAssetJobDefinition, hours: dg.HourlyPartitionsDefinition
) -> list[dg.SensorDefinition]:
    """One for each of the pipeline's kinds that have leases, named ``<pipeline>_<kind>_state``."""
    found = {table.kind: kind_of(table) for table in spec.tables}
    return [_sensor(name, spec, kind, job, hours) for kind in found.values() if kind.capabilities.leases]


def _sensor(
    name: str,
    spec: PipelineSpec,
    kind: Kind[Any],
    job: dg.UnresolvedAssetJobDefinition,
    hours: dg.HourlyPartitionsDefinition,
) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"{name}_{kind.name}_state",
        target=job,
        minimum_interval_seconds=_EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Shows state and lag of each topic-partition in the {kind.title} tables of {name}, and starts a "
        "run of a table where a dead run has left a batch half done (BEFORE).",
        tags={PIPELINE_TAG: name},
    )
    def lease_state(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context, name, spec, kind.name, hours)

    return lease_state


@dataclass(frozen=True)
class _Looked:
    """One table as a tick found it; `problem` where it did not answer."""

    table: Table
    leases: Sequence[LeaseState] = ()
    problem: str | None = None

    @property
    def name(self) -> str:
        """Unique in the pipeline, since all are of one kind; on the default connection the table's name, as stored."""
        return self.table.title.removeprefix(f"{self.table.kind} ")

    @property
    def key(self) -> dg.AssetKey:
        return table_key(self.table)


def tick(
    context: dg.SensorEvaluationContext, name: str, spec: PipelineSpec, kind: str, hours: dg.HourlyPartitionsDefinition
) -> dg.SensorResult:
    """One tick. A server that does not answer is reported, and does not delay the other tables for long."""
    current_run.end_unwanted(context.instance, name, spec)
    cursor = LeaseCursor.read(context.cursor)
    try:
        pipeline = Pipeline(name, spec, load_connections())
    except BatchmergeError as problem:
        return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
    tables = [table for table in spec.tables if table.kind == kind]
    with ThreadPoolExecutor(len(tables)) as pool:
        looked = list(pool.map(lambda table: _look(pipeline, table), tables))
    ends = _ends(pipeline)
    shown, events = dict(cursor.shown), list[dg.AssetObservation]()
    for one in looked:
        version = _version(one, ends)
        if one.leases and shown.get(one.name) != version:
            shown[one.name] = version
            events.append(dg.AssetObservation(one.key, metadata=_metadata(one.leases, ends)))
    # A backfill finishes what a dead run has begun (`jobs.replay.landed`), like a recovery run.
    busy, pauses = still_to_do(context.instance, name, spec), read_pauses(context.instance, name, spec)
    paused = paused_reason(pauses, spec)
    hold = {one.name: paused or pauses.reason(one.key) or busy.get(one.key) for one in looked}
    requests, asked, skipped = _recover(looked, cursor, hours, context.instance, hold)
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else "; ".join(skipped),
        cursor=LeaseCursor(shown=shown, asked=asked).model_dump_json(),
        # mypy: a list of one kind of event is no list of both
        asset_events=[*events],
    )


def _look(pipeline: Pipeline, table: Table) -> _Looked:
    destination = pipeline.destination_of(table)
    try:
        return _Looked(table, with_timeout(_PATIENCE, destination.name, destination.leases))
    except BatchmergeError as problem:
        return _Looked(table, problem=str(problem))


def _ends(pipeline: Pipeline) -> Offsets:
    """The ends of the topics; empty if Kafka does not answer: then lag is not shown."""
    try:
        return with_timeout(_PATIENCE, "Kafka", pipeline.topic_state).stable
    except BatchmergeError:
        return {}


def _recover(
    looked: Sequence[_Looked],
    cursor: LeaseCursor,
    hours: dg.HourlyPartitionsDefinition,
    instance: dg.DagsterInstance,
    hold: Mapping[str, str | None],
) -> tuple[list[dg.RunRequest], dict[str, object], list[str]]:
    """Run requests; the recovery runs that were requested, by table; and why none is requested for other tables."""
    requests = list[dg.RunRequest]()
    asked = dict[str, object](cursor.asked)
    skipped = list[str]()
    now = datetime.now(UTC)
    for one in looked:
        table = one.name
        verdicts = [left_behind(s, _status(instance, s.run_id), now, one.table.time_limit_seconds) for s in one.leases]
        dead = [lease for lease, (is_dead, _) in zip(one.leases, verdicts, strict=True) if is_dead]
        reasons = [text for _, text in verdicts]
        before = cursor.asked.get(table)
        if not dead:
            asked.pop(table, None)
            skipped.append(
                f"{table}: {one.problem or '; '.join(dict.fromkeys(reasons)) or 'no run has come to it yet'}"
            )
        elif held := hold[table]:
            skipped.append(f"{table}: {'; '.join(reasons)}; but {held}")
        elif not is_due(before, dead, time.time()):
            skipped.append(f"{table}: {'; '.join(reasons)}; a run was requested already")
        else:
            asked[table] = after_asking(before, dead[0].batch, time.time())
            hour, tags = hour_of(hours, now)
            tags["batchmerge/reason"] = f"recovers batch {dead[0].batch} of {table}"[:60]
            requests.append(dg.RunRequest(partition_key=hour, tags=tags, asset_selection=[one.key]))
    return requests, asked, skipped


def _status(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus | None:
    run = instance.get_run_by_id(run_id) if run_id else None
    return run.status if run else None


def _version(one: _Looked, ends: Offsets) -> str:
    """Changes with the state and with what waits, so that an event row is written only where something has moved."""
    seen = [(s.shard, s.epoch, s.batch, s.committed.commit_id if s.committed else "") for s in one.leases]
    return hashlib.sha256(repr((seen, sorted(ends.items()))).encode()).hexdigest()[:16]


def _metadata(leases: Sequence[LeaseState], ends: Offsets) -> dict[str, Any]:
    lag = max(lag_behind(ends, lease.committed) for lease in leases)
    under_way = [s for s in leases if s.left_behind]
    found = {
        "committed batch": min(s.committed.batch_number if s.committed else 0 for s in leases),
        "batch under way": max((s.batch for s in under_way), default=0),
        "partitions in BEFORE": sum(len(s.open_partitions) for s in leases),
        "held by": ", ".join(dict.fromkeys(s.run_id for s in leases if s.owner)) or "nobody",
        "partitions": _table(leases, ends),
    }
    return {**found, **({"lag": lag} if ends else {})}


def _table(leases: Sequence[LeaseState], ends: Offsets) -> dg.MetadataValue:
    """One row per topic-partition and endpoint."""
    rows = []
    for lease in leases:
        reached = lease.committed.offsets if lease.committed else {}
        for p in lease.partitions:
            tp, changed = TopicPartition(p.topic, p.partition), p.changed_at.isoformat(timespec="seconds")
            lag = max(0, ends[tp] - reached.get(tp, 0)) if tp in ends else -1
            found: dict[str, str | int] = {
                "topic-partition": str(tp),
                "endpoint": lease.endpoint,
                "state": p.phase,
                "batch": p.batch,
                "first offset": p.first,
                "last offset": p.last,
                "lag": lag,
                "changed": changed,
            }
            rows.append(dg.TableRecord(found))
    columns = [dg.TableColumn(name, kind) for name, kind in _COLUMNS.items()]
    return dg.MetadataValue.table(rows[:_MOST_ROWS], schema=dg.TableSchema(columns))
