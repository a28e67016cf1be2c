"""The failure alert: what is posted to a webhook about runs that fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import dagster as dg
import pytest
from dagster._core.events import EngineEventData, JobFailureData
from dagster._core.test_utils import create_run_for_test
from dagster_shared.error import SerializableErrorInfo

from orchestration.names import MAINTENANCE_TAG, PIPELINE_TAG, table_key
from orchestration.sensors.alert import VARIABLE, failure_alert
from orchestration.status.dagster_state import DagsterHere
from resources.connections import Connections
from resources.errors import Unavailable
from tests.kit.flow import Flow
from tests.kit.records import Record, bootstrap, produce, put
from tests.kit.web import Handler, serving
from tests.orchestration.launching import advance, definitions

Webhook = tuple[str, list[dict[str, object]]]
_SECRET = SerializableErrorInfo("ValueError: a secret", [], "ValueError")


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """The address of a server, and what was posted to it."""
    posted: list[dict[str, object]] = []
    asked: list[str] = []

    class Keeps(Handler):
        def do_POST(self) -> None:
            alert = json.loads(self.body())
            asked.append(self.path)
            busy = "always-busy" in self.path or ("busy-once" in self.path and asked.count(self.path) == 1)
            if not busy:
                posted.append(alert)
            self.answer(503 if busy else 200)

    with serving(Keeps) as address:
        yield f"{address}/hook", posted


def _not_begun(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterEvent:
    """As Dagster does: its pipeline is gone since the run was queued."""
    instance.report_engine_event("Could not load job definition.", run, EngineEventData.engine_error(_SECRET))
    return instance.report_run_failed(run)


def _flow(topic: str) -> Flow:
    return Flow(topic, ["append"], overrides={"trigger": {"records": 1}, "retry": {"max_retries": 0}})


def _alert(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    event: dg.DagsterEvent,
    loaded: dg.RepositoryDefinition | None = None,
) -> None:
    failure_alert(
        dg.build_run_status_sensor_context(
            sensor_name="failure_alert",
            dagster_event=event,
            dagster_instance=instance,
            dagster_run=run,
            repository_def=loaded,
        ).for_run_failure()
    )


def test_a_failure_is_reported_once_with_its_remedy(
    stack: object,
    instance: dg.DagsterInstance,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del stack
    address, posted = webhook
    monkeypatch.setenv(VARIABLE, address)
    flow = _flow("no-such-topic")
    result = advance(instance, flow)
    run = instance.get_run_by_id(result.run_id)
    assert run
    failed = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)[0].dagster_event
    assert failed

    _alert(instance, run, failed)

    assert len(posted) == 1
    alert = posted[0]
    assert alert["pipeline"] == flow.name
    assert alert["run_id"] == run.run_id
    assert isinstance(alert["steps"], list)
    step = alert["steps"][0]
    assert "no-such-topic" in step["error"]
    assert "create the topic" in step["remedy"]
    assert step["class"] == "terminal: needs a person"
    assert "no-such-topic" in str(alert["text"])


def test_a_failure_names_its_batch(
    connections: Connections,
    topic: Callable[..., str],
    instance: dg.DagsterInstance,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, posted = webhook
    monkeypatch.setenv(VARIABLE, address)
    flow = _flow(topic())
    produce(bootstrap(connections), flow.topic, [put(n) for n in range(3)])
    assert advance(instance, flow).success
    flow.overrides["on_bad_record"] = "fail"
    produce(bootstrap(connections), flow.topic, [Record(0, 1, "no JSON")])
    result = advance(instance, flow)
    run = instance.get_run_by_id(result.run_id)
    failed = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)[0].dagster_event
    assert run
    assert failed

    _alert(instance, run, failed)

    (alert,) = posted
    assert [step["batch"] for step in alert["steps"] if step["batch"]] == ["2"]  # type: ignore[attr-defined]
    assert f"{flow.name} failed: batch 2: " in str(alert["text"])


def test_a_failure_names_its_pipeline_however_the_run_was_launched(
    instance: dg.DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, posted = webhook
    monkeypatch.setenv(VARIABLE, address)
    flow = Flow("t", ["append"], name="p")
    loaded, (table,) = definitions(flow).get_repository_def(), flow.spec.tables
    check = dg.AssetCheckKey(table_key(table), "reconciled")
    for launched in (
        {"asset_selection": frozenset({table_key(table)})},
        {"asset_check_selection": frozenset({check})},
        {"tags": {MAINTENANCE_TAG: "p"}},
        {"tags": loaded.get_job("p_verify").run_tags},
        {},
    ):
        run = create_run_for_test(instance, job_name="job", status=dg.DagsterRunStatus.FAILURE, **launched)
        _alert(instance, run, dg.DagsterEvent(dg.DagsterEventType.RUN_FAILURE.value, "job"), loaded)
    assert [alert["pipeline"] for alert in posted] == ["p", "p", "p", "p", "job"]


def test_each_failure_is_reported_once_however_often_the_sensor_ticks(
    instance: dg.DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, posted = webhook
    monkeypatch.setenv(VARIABLE, address)

    def fail() -> str:
        run = create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.STARTED)
        instance.report_run_failed(run)
        return str(run.run_id)

    def tick(cursor: str | None) -> str | None:
        context = dg.build_sensor_context(instance, cursor=cursor, sensor_name="failure_alert")
        done = failure_alert.evaluate_tick(context)
        assert not done.dagster_run_reactions or done.dagster_run_reactions[0].error is None
        return done.cursor

    fail()
    cursor = tick(None)  # what failed before the sensor was there is not reported
    failed = [fail(), fail()]
    for _ in range(3):
        cursor = tick(cursor)
    assert [alert["run_id"] for alert in posted] == failed
    later = fail()
    for _ in range(2):
        cursor = tick(cursor)
    assert [alert["run_id"] for alert in posted] == [*failed, later]


def test_a_webhook_that_is_down_for_a_moment_still_gets_the_alert(
    instance: dg.DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, posted = webhook
    monkeypatch.setattr("orchestration.sensors.alert._PAUSES", (0.0, 0.0))
    run = create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.FAILURE)
    event = dg.DagsterEvent(dg.DagsterEventType.RUN_FAILURE.value, "p")

    def post_alert(path: str) -> None:
        monkeypatch.setenv(VARIABLE, address + path)
        _alert(instance, run, event)

    post_alert("/busy-once?secret")
    assert len(posted) == 1
    with pytest.raises(Unavailable, match="it answers 503") as caught:
        post_alert("/always-busy?secret")
    assert "secret" not in str(caught.value)
    assert len(posted) == 1


def test_a_failure_that_is_tried_again_is_not_reported(
    instance: dg.DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, posted = webhook
    monkeypatch.setenv(VARIABLE, address)
    run = create_run_for_test(
        instance, job_name="p", status=dg.DagsterRunStatus.FAILURE, tags={"dagster/will_retry": "true"}
    )
    event = dg.DagsterEvent(dg.DagsterEventType.RUN_FAILURE.value, "p")

    _alert(instance, run, event)

    assert posted == []


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (lambda instance, run: instance.report_run_failed(run, "its process 4711 is gone"), "its process 4711 is gone"),
        (
            lambda instance, run: instance.report_run_failed(run, "took too long", JobFailureData(error=_SECRET)),
            "unexpected ValueError: its page in Dagster has the traceback",
        ),
        (_not_begun, "Could not load job definition (ValueError)"),
    ],
)
def test_a_run_that_fails_without_a_failed_step_says_why(
    end: Callable[[dg.DagsterInstance, dg.DagsterRun], dg.DagsterEvent],
    says: str,
    instance: dg.DagsterInstance,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was killed, took longer than `max_runtime_seconds`, could not begin."""
    address, posted = webhook
    monkeypatch.setenv(VARIABLE, address)
    run = create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.STARTED, tags={PIPELINE_TAG: "p"})
    _alert(instance, run, end(instance, run))
    assert [alert["text"] for alert in posted] == [f"Batchmerge pipeline p failed: {says} (run {run.run_id})"]
    state = DagsterHere(instance).state({"p": []})
    assert state.errors == {"p": f"run {run.run_id[:8]}: {says}"}
