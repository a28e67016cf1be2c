"""Schedules and the lag sensor on a real instance and broker."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest
from confluent_kafka.admin import AdminClient
from dagster._core.definitions.schedule_definition import ScheduleExecutionData
from dagster._core.test_utils import create_run_for_test

from jobs import protocol
from jobs.events.messages import CommitTable, make_event
from orchestration import pauses
from orchestration.definitions import with_shared
from orchestration.names import ASKED_AT_TAG, LEFT_OUT_TAG, PIPELINE_TAG, landing_key, table_key
from orchestration.sensors.control import _materializations, after_commit
from orchestration.sensors.waiting import LagCursor
from resources.connections import Connections
from tests.kit.flow import Flow, rows
from tests.kit.records import Record, bootstrap, produce
from tests.kit.topics import make_topic, until_decided
from tests.kit.waiting import PATIENCE
from tests.orchestration.launching import advance, definitions, events

Topic = Callable[..., str]


def _records(count: int) -> list[Record]:
    return [Record(0, n, {"id": n, "name": "n", "amount": 1.0, "op": "u"}) for n in range(count)]


def _flow(topic: str, **trigger: int) -> Flow:
    return Flow(topic, ["append"], overrides={"trigger": trigger, "retry": {"max_retries": 0}})


def _tick(instance: dg.DagsterInstance, flow: Flow, cursor: str | None = None) -> dg.SensorResult:
    whole = definitions(flow)
    sensor = whole.resolve_sensor_def(f"{flow.name}_lag")
    context = dg.build_sensor_context(instance=instance, cursor=cursor, definitions=whole)
    found = sensor(context)
    assert isinstance(found, dg.SensorResult)
    return found


def test_lag_sensor_starts_a_run_at_its_threshold(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    flow = _flow(topic(), records=10)
    produce(bootstrap(connections), flow.topic, _records(9))
    before = _tick(instance, flow)
    produce(bootstrap(connections), flow.topic, _records(1))

    began = datetime.now(UTC)
    due = _tick(instance, flow, before.cursor)
    ended = datetime.now(UTC)

    assert before.run_requests == []
    assert "9 records wait" in str(before.skip_reason)
    (request,) = due.run_requests or []
    asked_at = datetime.fromisoformat(request.tags[ASKED_AT_TAG])
    assert began <= asked_at <= ended
    assert request.partition_key == f"{asked_at:%Y-%m-%d-%H:00}"
    assert request.run_key is None
    topic_event, landing_event = due.asset_events
    assert topic_event.asset_key == dg.AssetKey(["kafka", flow.topic])
    assert topic_event.metadata["end offset"].value == 10
    assert landing_event.metadata["lag"].value == 10
    assert landing_event.partition == request.partition_key, "Dagster leaves what names no hour out of the plot"


def test_lag_sensor_shows_what_waits_of_what_a_person_has_paused_and_starts_nothing(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    flow = _flow(topic(), records=10)
    (table,) = flow.spec.tables
    produce(bootstrap(connections), flow.topic, _records(10))
    pauses.pause(instance, flow.name, flow.spec, None, "anna")
    held = _tick(instance, flow)
    assert held.run_requests == []
    assert f"{flow.name} is paused by anna since " in str(held.skip_reason)
    assert held.asset_events[1].metadata["lag"].value == 10

    pauses.resume(instance, flow.name, flow.spec, None, "anna")
    pauses.pause(instance, flow.name, flow.spec, table, "anna")
    (asked,) = _tick(instance, flow, held.cursor).run_requests or []
    assert asked.asset_selection == [landing_key(flow.name)]
    assert "is paused by anna since " in asked.tags[LEFT_OUT_TAG]

    assert len(list(protocol.land(flow.pipeline(connections), 1))) == 1
    flow.overrides["trigger"] = {"age_seconds": 1}
    long_ago = LagCursor.read(held.cursor).model_copy(update={"tables_marks": [(1.0, 10)]}).model_dump_json()
    landed = _tick(instance, flow, long_ago)
    assert landed.run_requests == [], "no run would bring what is landed into the paused table"
    assert "10 landed ones are not in every table: no run is due" in str(landed.skip_reason)
    pauses.resume(instance, flow.name, flow.spec, None, "anna")
    assert _tick(instance, flow, long_ago).run_requests


def test_lag_sensor_feeds_the_plot_only_where_something_moved(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    flow = _flow(topic(), records=1000)
    produce(bootstrap(connections), flow.topic, _records(5))
    first = _tick(instance, flow)

    again = _tick(instance, flow, first.cursor)

    assert len(first.asset_events) == 2
    assert again.asset_events == []
    # What a run has landed is gone from the plots, though no record has come.
    assert advance(instance, flow).success
    after = _tick(instance, flow, again.cursor)
    assert [event.metadata["lag"].value for event in after.asset_events[1:]] == [0]
    assert after.asset_events[0].metadata[f"{flow.name}: lag"].value == 0
    assert _tick(instance, flow, after.cursor).asset_events == []


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED])
def test_nothing_starts_while_a_run_is_under_way(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance, status: dg.DagsterRunStatus
) -> None:
    flow = _flow(topic(), records=1)
    produce(bootstrap(connections), flow.topic, _records(5))
    create_run_for_test(instance, job_name=flow.name, status=status, tags={PIPELINE_TAG: flow.name})

    due = _tick(instance, flow)
    whole = definitions(flow)
    with dg.build_schedule_context(instance=instance) as context:
        tick = whole.resolve_schedule_def(f"{flow.name}_schedule").evaluate_tick(context)

    for reason in (str(due.skip_reason), str(tick.skip_message)):
        assert f"of {flow.name} is {status.value.lower()}" in reason
    assert due.run_requests == []
    assert not tick.run_requests


def test_a_late_tick_asks_for_its_own_hour_and_is_not_refused(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    flow = _flow(topic(), records=1)
    produce(bootstrap(connections), flow.topic, _records(3))
    whole = definitions(flow)
    late = datetime(2026, 3, 1, 5, 30, tzinfo=UTC)
    with dg.build_schedule_context(instance, late, repository_def=whole.get_repository_def()) as context:
        tick = whole.resolve_schedule_def(f"{flow.name}_schedule").evaluate_tick(context)
    assert tick.run_requests
    asked = tick.run_requests[0]
    assert asked.partition_key == "2026-03-01-05:00"

    job = whole.resolve_job_def(flow.name)
    result = job.execute_in_process(instance=instance, partition_key=asked.partition_key, tags=dict(asked.tags))

    assert result.success
    assert result.get_asset_materialization_events()[0].materialization.metadata["landed"].value == 3


def _scheduled(instance: dg.DagsterInstance, flow: Flow, schedule: str) -> ScheduleExecutionData:
    whole, now = definitions(flow), datetime.now(UTC)
    with dg.build_schedule_context(instance, now, repository_def=whole.get_repository_def()) as context:
        return whole.resolve_schedule_def(f"{flow.name}_{schedule}").evaluate_tick(context)


def test_a_paused_pipeline_starts_nothing_says_so_and_goes_on_from_its_offsets(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    flow = _flow(topic(), records=1)
    produce(bootstrap(connections), flow.topic, _records(3))
    before = advance(instance, flow)
    flow.overrides["paused"] = True
    produce(bootstrap(connections), flow.topic, _records(5))

    reason = f"{flow.name} is paused (`paused: true` in its file)"
    for schedule in ("schedule", "maintenance_schedule"):
        tick = _scheduled(instance, flow, schedule)
        assert (tick.run_requests or [], tick.skip_message) == ([], reason)
    lag = _tick(instance, flow)
    assert isinstance(lag.skip_reason, dg.SkipReason)
    assert (lag.run_requests, lag.skip_reason.skip_message) == ([], reason)
    assert lag.asset_events[-1].metadata["lag"].value == 5

    flow.overrides["paused"] = False
    assert len(_scheduled(instance, flow, "maintenance_schedule").run_requests or []) == 1
    (asked,) = _tick(instance, flow, lag.cursor).run_requests or []
    job = definitions(flow).resolve_job_def(flow.name)
    result = job.execute_in_process(instance=instance, partition_key=asked.partition_key, tags=dict(asked.tags))
    landing = result.get_asset_materialization_events()[0].materialization.metadata
    assert landing["offsets before"].value == before.landing.metadata["offsets after"]
    assert landing["landed"].value == 5
    assert len(rows(connections, flow.table("append"))) == 8


def test_a_tick_starts_no_run_where_nothing_is_new(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    flow = _flow(topic(), records=1)
    produce(bootstrap(connections), flow.topic, _records(3))
    assert _scheduled(instance, flow, "schedule").run_requests
    run_id = advance(instance, flow).run_id
    tick = _scheduled(instance, flow, "schedule")
    reason = f"nothing new since run {run_id[:8]} of {flow.name}"
    assert (tick.run_requests or [], tick.skip_message) == ([], reason)
    flow.overrides["freshness"] = {"warn_minutes": 7, "fail_minutes": 9}
    assert _scheduled(instance, flow, "schedule").run_requests, "the file is another one"
    del flow.overrides["freshness"]
    produce(bootstrap(connections), flow.topic, _records(1))
    assert _scheduled(instance, flow, "schedule").run_requests


def test_a_topic_that_appears_under_a_running_pattern_is_read_from_its_first_record(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    first = topic("seen")
    flow = _flow(first, records=1)
    source = {n: v for n, v in flow.spec_document["source"].items() if n != "topics"}
    flow.overrides["source"] = {**source, "pattern": f"(later-)?{first}"}
    produce(bootstrap(connections), first, _records(3))
    assert advance(instance, flow).success
    calm = _tick(instance, flow)
    assert calm.run_requests == []

    later = f"later-{first}"
    admin = AdminClient({"bootstrap.servers": bootstrap(connections)})
    make_topic(admin, later, partitions=2)
    try:
        produce(bootstrap(connections), later, _records(4))
        due = _tick(instance, flow, calm.cursor)
        assert due.run_requests
        assert due.asset_events[0].metadata["end offset"].value == 7
        result = advance(instance, flow)
        assert result.landing.metadata["landed"] == 4
        assert result.landing.metadata["offsets after"] == {first: {"0": 3}, later: {"0": 4, "1": 0}}
        assert len(rows(connections, flow.table("append"))) == 7
        assert all(
            event.asset_check_evaluation_data.passed
            for event in events(instance, result, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        )
    finally:
        admin.delete_topics([later])[later].result(timeout=PATIENCE)


def test_lag_sensor_says_so_where_kafka_lacks_the_topic(stack: object, instance: dg.DagsterInstance) -> None:
    del stack
    found = _tick(instance, _flow("no-such-topic", records=1), cursor='{"ends":"{}"}')
    assert "no-such-topic" in str(found.skip_reason)
    assert found.cursor == '{"ends":"{}"}'


def test_two_pipelines_may_read_one_topic() -> None:
    whole = definitions(Flow("shared", ["append"], name="one"), Flow("shared", ["append"], name="two"))
    dg.Definitions.validate_loadable(whole)
    keys = whole.resolve_asset_graph().get_all_asset_keys()
    assert len([key for key in keys if key.path[0] == "kafka"]) == 1


def test_commits_from_elsewhere_become_asset_events_and_start_what_waits(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    published = topic("control")
    control = {"topic": published, "time_limit_seconds": 300}
    flow = Flow(topic(), ["append"], overrides={"control": control, "retry": {"max_retries": 0}})
    produce(bootstrap(connections), flow.topic, _records(3))
    pipeline = flow.pipeline(connections)
    assert len(list(protocol.land(pipeline, 1))) == 1
    for destination in pipeline.destinations():
        protocol.merge(pipeline, destination)
    until_decided(bootstrap(connections), published)

    @dg.job
    def report() -> None:
        return None

    waits = after_commit(flow.name, flow.spec, report)
    whole = dg.Definitions.merge(definitions(flow), dg.Definitions(jobs=[report], sensors=[waits]))
    shows = whole.resolve_sensor_def(f"{flow.name}_control")

    def tick(sensor: dg.SensorDefinition, cursor: str | None = None) -> dg.SensorResult:
        found = sensor(dg.build_sensor_context(instance, cursor=cursor, definitions=whole))
        assert isinstance(found, dg.SensorResult)
        return found

    started, shown = tick(waits), tick(shows)
    assert started.run_requests
    assert [request.tags["batchmerge/batch"] for request in started.run_requests] == ["1"]
    assert [event.asset_key.path for event in shown.asset_events] == [["iceberg", "tests", f"{flow.name}_append"]]
    assert shown.asset_events[0].metadata["last batch"].value == 1

    # Nothing comes twice, and what a run of this instance did is a materialization already.
    assert tick(shows, shown.cursor).asset_events == []
    produce(bootstrap(connections), flow.topic, _records(2))
    assert advance(instance, flow).success
    again = tick(shows, shown.cursor)
    assert again.asset_events == []
    assert "none from elsewhere" in str(again.skip_reason)


def test_what_elsewhere_was_committed_starts_assets_downstream(instance: dg.DagsterInstance) -> None:
    """They look at the hours of the table. `eager()` waits until none of them is missing, which never happens."""
    flow = Flow("t", ["append"], name="p")
    (table,) = flow.spec.tables

    def reports(name: str, condition: dg.AutomationCondition[Any]) -> dg.AssetsDefinition:
        return dg.asset(name=name, deps=[table_key(table)], automation_condition=condition)(lambda: None)

    found = [
        reports("report", dg.AutomationCondition.any_deps_updated()),
        reports("eager", dg.AutomationCondition.eager()),
    ]
    whole = dg.Definitions.merge(definitions(flow), dg.Definitions(assets=found))
    with warnings.catch_warnings(action="ignore", category=dg.BetaWarning):
        before = dg.evaluate_automation_conditions(whole, instance)
        event = make_event("p", "elsewhere", CommitTable("c", 1, table.connection, table.table))
        for made in _materializations("p", flow.spec, [event]):
            instance.report_runless_asset_event(made)
        after = dg.evaluate_automation_conditions(whole, instance, cursor=before.cursor)
    assert [after.get_num_requested(dg.AssetKey(name)) for name in ("report", "eager")] == [1, 0]


def test_shared_sensors_come_once() -> None:
    whole = with_shared(dg.Definitions())
    assert [sensor.name for sensor in whole.sensors or []] == ["failure_alert"]
