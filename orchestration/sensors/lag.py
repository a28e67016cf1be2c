"""The lag sensor of a pipeline: feeds the lag plot without spending runs, and starts a run when enough waits."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from jobs import offsets
from jobs.connections_file import load_connections
from jobs.members.members import Members
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from jobs.spec.pipeline import PipelineSpec
from jobs.time_limit import with_timeout
from orchestration.current_hour import hour_of
from orchestration.names import PIPELINE_TAG, landing_key, topic_keys
from orchestration.pauses import read_pauses
from orchestration.runs import current_run
from orchestration.sensors.busy import Free, free_to_advance, paused_reason
from orchestration.sensors.waiting import (
    LagCursor,
    Waiting,
    moved,
    observe,
    reason_to_run,
    reason_to_wait,
    requested,
    waiting,
)
from resources.errors import BatchmergeError
from resources.kafka_groups import group_offsets

# Seconds between two ticks.
_EVERY = 30
# Seconds to wait for the systems of one pipeline. Dagster's daemon ends a tick after a minute.
_PATIENCE = 15.0
# The same limit for a pipeline with `for_each`, which may have hundreds of topics.
_PATIENCE_FOR_MEMBERS = 45.0


def lag_sensor(
    name: str, spec: PipelineSpec, job: dg.UnresolvedAssetJobDefinition, hours: dg.HourlyPartitionsDefinition
) -> dg.SensorDefinition:
    """Named ``<pipeline>_lag``. Each tick is one look at Kafka and one at the intermediate table's metadata."""

    @dg.sensor(
        name=f"{name}_lag",
        target=job,
        minimum_interval_seconds=_EVERY,
        # Also for a paused pipeline, to show how much waits.
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Shows how much waits for {name}, and starts it at its `trigger`.",
        tags={PIPELINE_TAG: name},
    )
    def lag(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context, name, spec, hours)

    return lag


def tick(
    context: dg.SensorEvaluationContext, name: str, spec: PipelineSpec, hours: dg.HourlyPartitionsDefinition
) -> dg.SensorResult:
    """One tick. If a system does not answer, it is skipped with that reason."""
    assert spec.trigger is not None
    current_run.end_unwanted(context.instance, name, spec)
    before, now = LagCursor.read(context.cursor), time.time()
    try:
        seen = look_at(name, spec)
    except BatchmergeError as problem:
        return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
    cursor, (hour, asked) = observe(before, seen, now), hour_of(hours, datetime.fromtimestamp(now, UTC))
    # Dagster keeps events for good: report one only if something has changed.
    last = before.seen if context.cursor is not None else None
    events = _events(name, spec, seen, last, cursor, now, hour) if last is None or moved(before, cursor) else []
    pauses = read_pauses(context.instance, name, spec)
    # A paused table stays behind, and no run would change that.
    counted = cursor.model_copy(update={"tables_marks": []}) if pauses.tables else cursor
    reason = reason_to_run(spec.trigger, seen, counted, now)
    free = free_to_advance(context.instance, name, spec) if reason else Free(hold=paused_reason(pauses, spec))
    hold = free.hold or (reason_to_wait(cursor, now) if reason else None)
    if reason is None or hold:
        why = f"{seen.landing} records wait, {seen.tables} landed ones are not in every table: no run is due"
        return dg.SensorResult(skip_reason=hold or why, cursor=cursor.model_dump_json(), asset_events=events)
    request = free.request(hour, {**asked, "batchmerge/reason": reason[:60]})
    return dg.SensorResult(run_requests=[request], cursor=requested(cursor, now).model_dump_json(), asset_events=events)


def look_at(name: str, spec: PipelineSpec) -> Waiting:
    """What waits now for a pipeline; with `for_each` for all its topics.

    Raises:
        TimeLimitReached: a system hangs. BatchmergeError: a system refuses.
    """

    def work() -> Waiting:
        connections = load_connections()
        if spec.source.for_each:
            return _look_at_members(Members(name, spec, connections))
        return look(Pipeline(name, spec, connections))

    patience = _PATIENCE_FOR_MEMBERS if spec.source.for_each else _PATIENCE
    return with_timeout(patience, f"systems of {name}", work)


def _look_at_members(members: Members) -> Waiting:
    """As `look` for all topics, which share a consumer group; landed offsets come from each intermediate table. Topics
    whose table cannot be read are left out: nobody knows what waits for them, and runs report them."""
    seen, (landed, failed) = members.look(), members.landed()
    states = [state for topic, state in seen.states.items() if topic not in failed]
    ends = {tp: offset for state in states for tp, offset in state.stable.items()}
    first = {tp: offset for state in states for tp, offset in state.first.items()}
    offsets_ = {tp: offset for state in landed for tp, offset in state.offsets.items()}
    return waiting(ends, first, offsets_, members.group_offsets(ends), sum(state.batch_number for state in landed))


def look(pipeline: Pipeline) -> Waiting:
    """What waits now. The consumer group has the offsets of the slowest table, so no table is queried."""
    topics: TopicState = pipeline.topic_state()
    state = pipeline.intermediate.committed()
    group = group_offsets(pipeline.kafka, pipeline.group, topics.stable)
    batches = state.batch_number if state else 0
    return waiting(topics.stable, topics.first, state.offsets if state else {}, group, batches)


def _events(
    name: str, spec: PipelineSpec, seen: Waiting, last: Waiting | None, cursor: LagCursor, now: float, hour: str | None
) -> list[dg.AssetMaterialization | dg.AssetObservation]:
    """A materialization per topic (its data version is its end), and an observation with the lag on the landing."""
    seconds = round(now - cursor.waiting_since if cursor.waiting_since else 0.0, 1)
    topics = topic_points(name, spec, seen, last, lambda own: _age(own, seconds))
    # Dagster plots a partitioned asset by its partitions, without events that name none.
    shown = {**lags(seen), **_age(seen, seconds)}
    return [*topics, dg.AssetObservation(landing_key(name), partition=hour, metadata=shown)]


def _age(seen: Waiting, seconds: float) -> dict[str, float]:
    return {"lag seconds": seconds if seen.landing or seen.tables else 0.0}


def lags(seen: Waiting) -> dict[str, int]:
    """How many records wait: for the landing, for the slowest table, and together."""
    return {
        "lag": seen.landing + seen.tables,
        "lag of landing": seen.landing,
        "lag of tables": seen.tables,
    }


def topic_points(
    name: str,
    spec: PipelineSpec,
    seen: Waiting,
    last: Waiting | None,
    numbers: Callable[[Waiting], Mapping[str, float]],
) -> list[dg.AssetMaterialization]:
    """A point in the plots of each topic: what Kafka has of it, what waits of it, and these numbers.

    Args:
        numbers: gives further numbers of a topic, from what waits of it.
        last: what waited at the last point: topics of which nothing has changed since get none. None: all get one.
    """
    found, before = [], _by_key(name, spec, last) if last else {}
    for key, own in _by_key(name, spec, seen).items():
        if own == before.get(key):
            continue
        ends = {str(tp): offset for tp, offset in own.ends.items()}
        end: dict[str, Any] = {"end offset": sum(ends.values()), "ends": dg.MetadataValue.json(ends)}
        # Several pipelines may read the topic: their lags are separate plots.
        waits = {f"{name}: {what}": value for what, value in {**lags(own), **numbers(own)}.items()}
        version = hashlib.sha256(offsets.encode(own.ends).encode()).hexdigest()[:16]
        found.append(dg.AssetMaterialization(key, metadata={**end, **waits}, tags={"dagster/data_version": version}))
    return found


def _by_key(name: str, spec: PipelineSpec, seen: Waiting) -> dict[dg.AssetKey, Waiting]:
    """What waits of each asset of topics; a pattern, and `for_each`, have one for all."""
    keys = topic_keys(name, spec.source)
    if spec.source.pattern or spec.source.for_each:
        return dict.fromkeys(keys, replace(seen, batches=0))
    of_topics = seen.by_topic()
    return {key: of_topics.get(key.path[-1], Waiting({}, 0, 0)) for key in keys}
