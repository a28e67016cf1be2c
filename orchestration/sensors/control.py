"""Sensors on the control topic: they show commits of runs elsewhere on assets, and start jobs after commits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import dagster as dg

from jobs.connections_file import load_connections
from jobs.events.messages import CommitComplete, CommitTable, Event
from jobs.events.reading import read_events
from jobs.spec.members import SEPARATOR
from jobs.spec.pipeline import PipelineSpec
from orchestration.known_tables import known_tables
from orchestration.names import PIPELINE_TAG, table_key
from orchestration.sensors.cursor import SensorCursor
from resources.connections import KafkaConnection
from resources.errors import BatchmergeError
from resources.kafka import KafkaCluster

# Seconds between two ticks.
_EVERY = 30
# Ids of events that the cursor keeps.
_REMEMBERED = 500
# Seconds after which a tick reads no further page, of which each may take ten: Dagster's daemon ends it after a minute.
_READING = 20.0
# The pipeline's events after which it reads none, since each may become an event of Dagster's.
_ENOUGH = 5000


class ControlCursor(SensorCursor):
    """The position in the topic, and ids of the newest events: an event may be published twice, with the same id."""

    position: str | None = None
    seen: tuple[str, ...] = ()


def control_sensor(name: str, spec: PipelineSpec) -> dg.SensorDefinition:
    """Named ``<pipeline>_control``: a commit that no run of this Dagster instance made is shown on its table's asset.

    So assets downstream (`AutomationCondition.any_deps_updated()`) see what a run elsewhere did. Commits of our own
    runs are already materializations. Off by default.
    """

    @dg.sensor(
        name=f"{name}_control",
        minimum_interval_seconds=_EVERY,
        description=f"Shows commits of {name} that were made outside of this Dagster instance.",
        tags={PIPELINE_TAG: name},
    )
    def control(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        found = _new_events(context, name, spec)
        if isinstance(found, dg.SensorResult):
            return found
        events, cursor = found
        shown = list(_materializations(name, spec, _from_elsewhere(context.instance, events)))
        reason = None if shown else f"{len(events)} new events, none from elsewhere"
        return dg.SensorResult(asset_events=shown, skip_reason=reason, cursor=cursor.model_dump_json())

    return control


def after_commit(
    name: str, spec: PipelineSpec, target: dg.UnresolvedAssetJobDefinition | dg.JobDefinition
) -> dg.SensorDefinition:
    """A sensor that starts `target` when all tables of the pipeline have a new batch; one run for all new batches. With
    `for_each`: when all tables of a topic have one.

    For your own definitions: ``after_commit("flights", pipeline_spec("flights"), target=report_job)``.
    """

    @dg.sensor(
        name=f"{target.name}_after_{name}",
        target=target,
        minimum_interval_seconds=_EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts {target.name} when all tables of {name} have a new batch.",
    )
    def after(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        found = _new_events(context, name, spec)
        if isinstance(found, dg.SensorResult):
            return found
        events, cursor = found
        complete = [event.payload.batch_number for event in events if isinstance(event.payload, CommitComplete)]
        # Batches of different topics have numbers of their own: the highest says nothing.
        tags = {} if spec.source.for_each or not complete else {"batchmerge/batch": str(max(complete))}
        requests = [dg.RunRequest(tags=tags)] if complete else []
        reason = None if requests else f"no batch of {name} was completed"
        return dg.SensorResult(run_requests=requests, skip_reason=reason, cursor=cursor.model_dump_json())

    return after


def _new_events(
    context: dg.SensorEvaluationContext, name: str, spec: PipelineSpec
) -> tuple[list[Event], ControlCursor] | dg.SensorResult:
    """The pipeline's new events; or a skip, if the topic cannot be read now."""
    before = ControlCursor.read(context.cursor)
    try:
        connection = load_connections().get(spec.source.connection, KafkaConnection)
        cluster = KafkaCluster(spec.source.connection, connection)
        own, position = _read(cluster, name, spec, before.position)
    except BatchmergeError as problem:
        return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
    return unseen(own, before, position)


def _from_elsewhere(instance: dg.DagsterInstance, events: Sequence[Event]) -> list[Event]:
    """The events of runs that this instance does not know. A continuous run publishes thousands, so each run is looked
    up once."""
    runs = {event.run_id for event in events}
    elsewhere = {run for run in runs if instance.get_run_by_id(run) is None}
    return [event for event in events if event.run_id in elsewhere]


def _read(cluster: KafkaCluster, name: str, spec: PipelineSpec, position: str | None) -> tuple[list[Event], str]:
    """The pipeline's events after this position, page by page: other pipelines may have published hundreds."""
    own, until = list[Event](), time.monotonic() + _READING
    while True:
        found, reached = read_events(cluster, spec.control.topic, position)
        own += [event for event in found if is_of(event, name, spec)]
        if reached == position or len(own) >= _ENOUGH or time.monotonic() > until:
            return own, reached
        position = reached


def is_of(event: Event, name: str, spec: PipelineSpec) -> bool:
    """Whether it is an event of the pipeline; with `for_each`, of one of its topics."""
    return event.group == name or bool(spec.source.for_each and event.group.startswith(f"{name}{SEPARATOR}"))


def unseen(own: Sequence[Event], before: ControlCursor, position: str) -> tuple[list[Event], ControlCursor]:
    """The pipeline's events whose id is new, once each, and the cursor that remembers them."""
    new: dict[str, Event] = {}
    for event in own:
        if event.id not in before.seen:
            new.setdefault(event.id, event)
    return list(new.values()), ControlCursor(position=position, seen=(*before.seen, *new)[-_REMEMBERED:])


def _materializations(name: str, spec: PipelineSpec, events: Sequence[Event]) -> Iterator[dg.AssetMaterialization]:
    tables = [one.table for one in known_tables(name, spec)]
    keys = {(table.connection, table.table): table_key(table) for table in tables}
    for event in events:
        payload = event.payload
        if not isinstance(payload, CommitTable) or (payload.connection, payload.table) not in keys:
            continue
        times = {"VTTS": payload.vtts, "caught up through": payload.caught_up_through}
        yield dg.AssetMaterialization(
            keys[payload.connection, payload.table],
            partition=f"{event.timestamp:%Y-%m-%d-%H:00}",
            description=f"batch {payload.batch_number}, committed elsewhere",
            metadata={
                "last batch": payload.batch_number,
                "commit id": payload.commit_id,
                "reference": payload.reference or "unknown",
                "run id": event.run_id,
                **{what: dg.MetadataValue.timestamp(at) for what, at in times.items() if at},
            },
            tags={"dagster/data_version": payload.commit_id},
        )
