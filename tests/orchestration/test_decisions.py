"""The pure decisions of the orchestration: advance or replay, when a run is due, what the invariants say."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.plan.objects import StepFailureData, StepSuccessData
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test
from pydantic import ValidationError

from jobs.batch import CommittedState, Counts, LandedBatch, LandedBatches
from jobs.behind import caught_up_through, lag_behind
from jobs.events.messages import CommitComplete, CommitTable, Event
from jobs.offsets import OffsetRange, TopicPartition
from jobs.spec.automation import Retry, Trigger
from jobs.spec.pipeline import Freshness, PipelineSpec
from jobs.verify import invariants
from jobs.watermark import Watermark
from orchestration import pauses
from orchestration.cli.job_runs import plain
from orchestration.components import KafkaPipeline, checks, merging, metadata
from orchestration.components.config import LandConfig, Mode
from orchestration.components.failures import as_failures, raise_for_checks
from orchestration.components.launch import Launch
from orchestration.components.window import Window, replays
from orchestration.names import (
    ASKED_AT_TAG,
    COMMAND_TAG,
    COMMAND_WAITS,
    COMMAND_WORKS,
    CONTINUOUS_TAG,
    FILE_TAG,
    LANDED_TAG,
    LEFT_OUT_TAG,
    PIPELINE_TAG,
    continuous_op,
    file_hash,
    landing_key,
    op_name,
    table_key,
)
from orchestration.sensors import control, idle
from orchestration.sensors.busy import Free, busy_reason, free_to_advance, still_to_do
from orchestration.sensors.control import after_commit, is_of
from orchestration.sensors.idle import settles
from orchestration.sensors.lag import _age, topic_points
from orchestration.sensors.waiting import (
    LagCursor,
    Waiting,
    observe,
    reason_to_run,
    reason_to_wait,
    requested,
    waiting,
)
from resources.errors import ConfigurationError, TimeLimitReached, Unavailable
from tests.kit import specs
from tests.kit.batches import committed, landed
from tests.kit.flow import Flow

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = Window(NOON, NOON + timedelta(hours=1))
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("mode", "backfill", "asked_at", "answer"),
    [
        ("auto", False, NOON, False),
        ("auto", False, NOON + timedelta(minutes=59), False),
        ("auto", True, NOON + timedelta(days=3), True),
        ("replay", False, NOON + timedelta(days=3), True),
        ("advance", True, NOON, False),
    ],
)
def test_replays_only_where_somebody_asked_for_it(mode: Mode, backfill: bool, asked_at: datetime, answer: bool) -> None:
    assert replays(mode, backfill, HOUR, asked_at) is answer


@pytest.mark.parametrize("asked_at", [NOON, NOON + timedelta(days=3)])
def test_several_hours_are_a_replay(asked_at: datetime) -> None:
    """Dagster launches them as a backfill only, and names it no more in a run that executes one again."""
    until_now = Window(NOON - timedelta(hours=15), NOON + timedelta(hours=1))
    assert replays("auto", False, until_now, asked_at) is True


@pytest.mark.parametrize("backfill", [True, False])
def test_what_executes_a_backfill_again_replays_too(backfill: bool, instance: dg.DagsterInstance) -> None:
    """Dagster takes the backfill's tag away once the backfill is over."""
    flow, table = Flow("t", ["append"], name="p"), dg.AssetKey(["iceberg", "tests", "p_append"])
    tags = {"dagster/backfill": "b"} if backfill else {}
    failed = create_run_for_test(instance, job_name="x", status=dg.DagsterRunStatus.FAILURE, tags=tags)
    again = create_run_for_test(
        instance,
        job_name="x",
        status=dg.DagsterRunStatus.STARTED,
        tags={ASKED_AT_TAG: NOON.isoformat()},
        parent_run_id=failed.run_id,
        root_run_id=failed.run_id,
        asset_selection=frozenset({table}),
    )
    window: Any = SimpleNamespace(start=HOUR.start, end=HOUR.end)
    job = KafkaPipeline("p", flow.spec).definitions().resolve_job_def("p")
    context: Any = SimpleNamespace(
        run=again, instance=instance, has_partition_key=True, partition_time_window=window, job_def=job
    )
    assert Launch("p", flow.spec).replayed_window(context, "auto") == (HOUR if backfill else None)
    assert (free_to_advance(instance, "p", flow.spec) == Free()) == backfill


@pytest.mark.parametrize("asked_at", [NOON + timedelta(hours=1), NOON - timedelta(seconds=1)])
@pytest.mark.parametrize(("mode", "backfill"), [("auto", False), ("advance", False), ("advance", True)])
def test_advancing_another_hour_is_refused(mode: Mode, backfill: bool, asked_at: datetime) -> None:
    with pytest.raises(ConfigurationError) as refused:
        replays(mode, backfill, HOUR, asked_at)
    # Dagster's page launches a single hour as a plain run: a backfill is no way out there.
    assert "`mode: replay`" in str(refused.value)
    assert f"`batchmerge replay <pipeline> --from {NOON:%Y-%m-%dT%H} --to {NOON:%Y-%m-%dT%H}`" in str(refused.value)


@pytest.mark.parametrize("complete", [True, False])
def test_hours_before_the_oldest_landed_batch_are_merged_as_the_landing_has_read_them(
    complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where retention has removed batches; only a run without the landing's step has to say that they are gone."""
    place = SimpleNamespace(landed=lambda: LandedBatches([landed(41), landed(42)], complete), recreated=dict)
    pipeline: Any = SimpleNamespace(spec=Flow("t", ["append"]).spec, intermediate=place, check_meaning=lambda _: None)
    destination: Any = SimpleNamespace(
        name="d",
        table=SimpleNamespace(has_coordinates=True, has_unique_key=True, max_commit_attempts=1),
        check_replay=lambda: None,
        leases=list,
        settle=lambda: None,
        committed=lambda: committed(42),
    )
    merged: Any = object()
    monkeypatch.setattr(merging, "_advance", lambda *_: merged)
    oldest = datetime.fromtimestamp(41, UTC)
    hours = Window(oldest - timedelta(hours=2), oldest - timedelta(hours=1))
    assert merging._replay(pipeline, destination, hours) is merged
    alone = replace(hours, lands=False)
    if complete:
        assert merging._replay(pipeline, destination, alone) is None
    else:
        with pytest.raises(ConfigurationError, match=r"batches before 41, landed before .* were removed by retention"):
            merging._replay(pipeline, destination, alone)


def test_a_run_without_hours_advances_and_cannot_replay() -> None:
    assert replays("auto", False, None, NOON) is False
    with pytest.raises(ConfigurationError, match="needs hours"):
        replays("replay", False, None, NOON)


@pytest.mark.parametrize(
    ("config", "batches"),
    [
        (LandConfig(), 7),
        (LandConfig(max_batches=2), 2),
        (LandConfig(max_batches=0), 0),
        (LandConfig(until_caught_up=True), 0),
    ],
)
def test_how_many_batches(config: LandConfig, batches: int) -> None:
    assert config.batches(7) == batches


def test_what_waits() -> None:
    ends, first = {A: 100, B: 50}, {A: 10, B: 0}
    assert waiting(ends, first, {}, {}) == Waiting(ends, landing=140, tables=0, lags={"t": (140, 0)})
    assert waiting(ends, first, {A: 60, B: 50}, {A: 60, B: 20}) == Waiting(
        ends, landing=40, tables=30, lags={"t": (40, 30)}
    )


def test_each_topic_shows_what_it_has_itself_and_only_where_that_has_changed() -> None:
    """Whoever reads one topic alone has nothing to do for records of another one."""
    spec = specs.spec(source={"topics": ["quiet", "busy"]})
    quiet, busy = TopicPartition("quiet", 0), TopicPartition("busy", 0)

    def points(seen: Waiting, last: Waiting | None) -> dict[str, tuple[object, object, str]]:
        found = dict[str, tuple[object, object, str]]()
        for one in topic_points("p", spec, seen, last, lambda own: {"lag seconds": 9.0 if own.landing else 0.0}):
            shown, version = one.metadata, (one.tags or {})["dagster/data_version"]
            found[one.asset_key.path[-1]] = shown["end offset"].value, shown["p: lag"].value, version
        return found

    first = waiting({quiet: 7, busy: 150}, {}, {quiet: 7, busy: 100}, {quiet: 5})
    more = waiting({quiet: 7, busy: 250}, {}, {quiet: 7, busy: 100}, {quiet: 5})
    merged = waiting({quiet: 7, busy: 250}, {}, {quiet: 7, busy: 100}, {quiet: 7})
    before, after = points(first, None), points(more, None)
    assert {topic: (end, lag) for topic, (end, lag, _) in before.items()} == {"quiet": (7, 2), "busy": (150, 150)}
    assert before["quiet"] == after["quiet"]
    assert before["busy"][2] != after["busy"][2]
    # As the sensor's cursor keeps it.
    cursor = LagCursor.read(observe(LagCursor(), first, now=0).model_dump_json())
    assert points(first, cursor.seen) == {}
    assert points(more, cursor.seen).keys() == {"busy"}
    assert points(merged, observe(cursor, more, now=30).seen) == {"quiet": (7, 0, before["quiet"][2])}


def test_a_topic_of_which_nothing_waits_shows_no_age() -> None:
    """The pipeline's age, at the last point of the topic, would stay in its plot."""
    spec = specs.spec(source={"topics": ["quiet", "busy"]})
    quiet, busy = TopicPartition("quiet", 0), TopicPartition("busy", 0)
    seen = waiting({quiet: 7, busy: 150}, {}, {quiet: 7, busy: 100}, {quiet: 7})
    points = topic_points("p", spec, seen, None, lambda own: _age(own, 460.0))
    shown = {one.asset_key.path[-1]: one.metadata["p: lag seconds"].value for one in points}
    assert shown == {"quiet": 0.0, "busy": 460.0}


def test_a_run_is_due_by_records_or_by_age() -> None:
    trigger = Trigger(records=100, age_seconds=60)
    few = Waiting({A: 10}, landing=10, tables=0)
    first = observe(LagCursor(), few, now=1000)
    assert reason_to_run(trigger, few, first, now=1000) is None
    assert reason_to_run(trigger, replace(few, landing=100), first, now=1000)
    later = observe(first, few, now=1060)
    assert later.waiting_since == 1000
    assert reason_to_run(trigger, few, later, now=1059.9) is None
    assert "waiting for 60 s" in str(reason_to_run(trigger, few, later, now=1060))
    assert reason_to_run(Trigger(records=100), few, later, now=9999) is None


def test_a_table_that_stays_behind_gets_a_run_per_age_and_not_per_tick() -> None:
    trigger = Trigger(age_seconds=60)
    behind = Waiting({A: 10}, landing=0, tables=5)
    cursor = observe(LagCursor(), behind, now=0.5)
    assert reason_to_run(trigger, behind, cursor, now=70)
    cursor = observe(requested(cursor, 70), behind, now=100)
    assert reason_to_run(trigger, behind, cursor, now=100) is None
    assert reason_to_run(trigger, behind, cursor, now=131)


@pytest.mark.parametrize("where", ["landing", "tables"])
def test_what_comes_all_the_time_waits_only_since_it_has_come(where: str) -> None:
    """A record a second, and runs that do at once all that is there."""
    trigger, cursor, done, runs = Trigger(age_seconds=60), LagCursor(), 0, list[int]()
    for now in range(10, 400, 10):
        seen = Waiting({A: now}, *((now - done, 0) if where == "landing" else (0, now - done)))
        cursor = observe(cursor, seen, now)
        assert (cursor.waiting_since or cursor.tables_since) == done + 10
        if reason_to_run(trigger, seen, cursor, now):
            runs.append(now)
            cursor, done = requested(cursor, now), now
    assert runs == [70, 140, 210, 280, 350]


def _requests(moves_at: int) -> list[int]:
    """When runs are requested that fail, but for one that lands a record at this moment."""
    trigger, cursor, found = Trigger(records=1), LagCursor(), list[int]()
    for now in range(0, 4 * 3600, 30):
        seen = Waiting({A: 10 + now}, 10 + now - int(now >= moves_at), 0)
        cursor = observe(cursor, seen, now)
        if reason_to_run(trigger, seen, cursor, now) and not reason_to_wait(cursor, now):
            found.append(now)
            cursor = requested(cursor, now)
    return found


def test_runs_that_land_nothing_are_started_after_pauses_that_double_until_something_moves() -> None:
    never = [after - before for before, after in pairwise(_requests(10**6))]
    assert never == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert [now for now in _requests(3000) if now >= 2000][:5] == [3000, 3030, 3090, 3210, 3450]


def test_new_records_are_landed_however_long_a_table_was_behind() -> None:
    trigger, cursor, found = Trigger(age_seconds=60), LagCursor(), list[int]()
    for now in range(0, 7200, 30):
        come = now >= 4000
        seen = Waiting({A: 10 + int(come)}, int(come), 5, lags={"a": (1, 5)} if come else {"a": (0, 5)})
        cursor = observe(cursor, seen, now)
        if reason_to_run(trigger, seen, cursor, now) and not reason_to_wait(cursor, now):
            found.append(now)
            cursor = requested(cursor, now)
    assert [now for now in found if now < 4000] == [60, 120, 180, 300, 540, 1020, 1980, 3900]
    assert next(now for now in found if now > 4000) <= 4110


def test_new_records_are_landed_however_long_another_topic_could_not_be() -> None:
    trigger, cursor, found = Trigger(age_seconds=60), LagCursor(), list[int]()
    for now in range(0, 20000, 30):
        come = now >= 15000
        lags = {"stuck": (10, 0), **({"good": (1, 0)} if come else {})}
        seen = Waiting({A: 10, B: int(come)}, 10 + int(come), 0, lags=lags)
        cursor = observe(cursor, seen, now)
        if reason_to_run(trigger, seen, cursor, now) and not reason_to_wait(cursor, now):
            found.append(now)
            cursor = requested(cursor, now)
    assert next(now for now in found if now >= 15000) <= 15060


def test_however_long_nothing_is_done_the_cursor_stays_small() -> None:
    cursor = LagCursor()
    for now in range(1, 1000):
        cursor = observe(cursor, Waiting({A: now}, now, 0), now)
    assert cursor.waiting_since == 1
    assert len(cursor.model_dump_json()) < 3000
    assert observe(cursor, Waiting({A: 1010}, 1010 - 998, 0), 1010).waiting_since in range(50, 1000)
    assert observe(cursor, Waiting({A: 1010}, 1010 - 999, 0), 1010).waiting_since == 1010


def test_a_topic_that_is_gone_makes_nothing_wait_for_ever() -> None:
    cursor = observe(LagCursor(), Waiting({A: 100, B: 1000}, landing=10, tables=10), now=5)
    cursor = observe(cursor, Waiting({A: 110}, landing=20, tables=0), now=35)
    assert (cursor.waiting_since, cursor.tables_since) == (5, None)
    assert observe(cursor, Waiting({A: 120}, landing=10, tables=0), now=65).waiting_since == 65


def test_nothing_waits_any_more() -> None:
    cursor = observe(observe(LagCursor(), Waiting({A: 10}, 3, 3), now=5), Waiting({A: 10}, 0, 0), now=100)
    assert (cursor.waiting_since, cursor.tables_since) == (None, None)


def test_a_trigger_needs_a_threshold() -> None:
    with pytest.raises(ValidationError, match="records"):
        Trigger()


def _batch(number: int, start: int, end: int, previous: str | None, **counts: int) -> LandedBatch:
    made = landed(number, Watermark({A: 1000}, 1000), ranges={A: OffsetRange(start, end)}, previous=previous)
    return replace(made, counts=Counts(**counts))


CHAIN = [_batch(1, 0, 10, None, read=10, landed=9, quarantined=1), _batch(2, 10, 30, "c1", read=20, landed=20)]


def test_a_good_chain() -> None:
    assert not invariants.offset_jumps(CHAIN)
    assert not invariants.unbalanced(CHAIN)
    assert not invariants.not_next(CHAIN)
    assert not invariants.offset_mismatch(CommittedState.after(CHAIN[1]), CHAIN)


def test_broken_chains_are_reported() -> None:
    assert "starts at 11" in invariants.offset_jumps([CHAIN[0], _batch(2, 11, 30, "c1")])[0]
    assert (
        "leaves out t-0"
        in invariants.offset_jumps([CHAIN[0], replace(CHAIN[1], batch=replace(CHAIN[1].batch, ranges={}))])[0]
    )
    assert "read 5" in invariants.unbalanced([_batch(1, 0, 5, None, read=5, landed=4)])[0]
    assert "follows c0" in invariants.not_next([CHAIN[0], _batch(2, 10, 30, "c0")])[0]
    assert invariants.not_next([CHAIN[0], _batch(3, 10, 30, "c1")])
    state = CommittedState.after(CHAIN[1])
    assert (
        "ends at 30 of t-0, the table says 29" in invariants.offset_mismatch(replace(state, offsets={A: 29}), CHAIN)[0]
    )
    assert "landed as c2" in invariants.offset_mismatch(replace(state, commit_id="x"), CHAIN)[0]


def test_lag_and_freshness() -> None:
    state = CommittedState.after(CHAIN[1])
    assert lag_behind({A: 35, B: 7}, state) == 12
    assert lag_behind({A: 35}, None) == 35
    assert lag_behind({A: 35, B: 9}, None, {A: 30, B: 9}) == 5, "what has expired does not wait"
    at_second_one = datetime.fromtimestamp(1, UTC)
    assert caught_up_through(state.watermark, 5, NOON) == at_second_one
    assert caught_up_through(state.watermark, 0, NOON) == NOON
    assert caught_up_through(None, None, NOON) is None


@pytest.mark.parametrize(("minutes", "passed"), [(0, True), (30, True), (31, False)])
def test_a_table_further_behind_than_its_freshness_warns_and_stops_nothing(minutes: int, passed: bool) -> None:
    key = dg.AssetKey(["iceberg", "a", "t"])
    through = Watermark(caught_up_through=int((NOON - timedelta(minutes=minutes)).timestamp() * 1000))
    found = checks.caught_up_result(key, Freshness(warn_minutes=30), through, 5, NOON)
    assert (found.passed, found.severity) == (passed, dg.AssetCheckSeverity.WARN)
    assert found.metadata["minutes behind"].value == minutes
    raise_for_checks([found], "t")
    assert checks.caught_up_result(key, Freshness(), None, 0, NOON).passed
    assert checks.caught_up_result(key, Freshness(), Watermark(), 0, NOON).passed
    for watermark in (None, Watermark()):  # without a batch, and with one that says no time
        unknown = checks.caught_up_result(key, Freshness(), watermark, 5, NOON)
        assert (unknown.passed, "5 records wait" in str(unknown.description)) == (False, True)


def test_a_broken_promise_stops_the_step_and_is_not_tried_again() -> None:
    jumps = [CHAIN[0], _batch(2, 11, 30, "c1")]
    results = checks.landing_results(landing_key("p"), jumps)
    assert [found.passed for found in results] == [False, True, True]
    with pytest.raises(dg.Failure, match="offsets_contiguous") as stopped:
        raise_for_checks(results, "landing/p")
    assert stopped.value.allow_retries is False
    with pytest.raises(dg.Failure) as same, as_failures(Retry()):
        raise stopped.value
    assert same.value is stopped.value


def test_who_waits_reads_why_and_how_long(caplog: pytest.LogCaptureFixture) -> None:
    for tries, message in ((0, "Kafka is away; tried again in "), (1, "")):
        caplog.clear()
        with pytest.raises(dg.RetryRequested), as_failures(Retry(max_retries=1, delay_seconds=1), tries):
            raise Unavailable("Kafka is away")
        assert caplog.text.count("tried again") == bool(message)
        assert message in caplog.text


def test_only_what_may_pass_is_tried_again() -> None:
    retry = Retry(max_retries=2, delay_seconds=1)
    with pytest.raises(dg.RetryRequested) as again, as_failures(retry, tries=1):
        raise Unavailable("Kafka is away")
    assert again.value.max_retries == 2
    assert 2 <= float(again.value.seconds_to_wait or 0) <= 4, "three times the delay, give or take one"
    assert isinstance(again.value.__cause__, dg.Failure), "what Dagster shows"
    for terminal, says in (
        (ConfigurationError("no such table"), "no such table"),
        (TimeLimitReached("it hangs"), "it hangs"),
        (RuntimeError("a bug"), "unexpected RuntimeError$"),  # alerts repeat it, and a bug's text may hold anything
    ):
        with pytest.raises(dg.Failure, match=says) as stopped, as_failures(retry):
            raise terminal
        assert stopped.value.allow_retries is False
    with pytest.raises(KeyboardInterrupt), as_failures(retry):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("delay", "tries", "least", "most"),
    [(10, 0, 0, 20), (10, 5, 600, 600), (10, 10**4, 600, 600), (3600, 0, 0, 3600), (3600, 1, 3600, 3600)],
)
def test_pauses_between_tries_grow_to_ten_minutes(delay: float, tries: int, least: float, most: float) -> None:
    """Unless the file wants longer ones."""
    with pytest.raises(dg.RetryRequested) as again, as_failures(Retry(max_retries=10**5, delay_seconds=delay), tries):
        raise Unavailable("Kafka is away")
    assert least <= float(again.value.seconds_to_wait or 0) <= most


@pytest.mark.parametrize(("policy", "passed"), [(None, False), ("ignore", True)])
def test_fields_that_were_left_out_warn_until_the_file_says_something(policy: str | None, passed: bool) -> None:
    document = Flow("t", ["upsert"]).spec_document
    source: Any = document["source"]
    value = {**source["value"], **({"unknown_fields": policy} if policy else {})}
    spec = PipelineSpec.model_validate({**document, "source": {**source, "value": value}})
    landed = [replace(CHAIN[0], unknown={"new": 2, "name": 9}), replace(CHAIN[1], unknown={"new": 1})]
    found = checks.fields_result(landing_key("p"), spec, landed)
    assert (found.passed, found.severity) == (passed, dg.AssetCheckSeverity.WARN)
    assert found.metadata["records with new"].value == 3
    assert "name" not in str(found.metadata), "it has a column now"
    assert metadata.landed(landed, 1)["unknown fields"].value == {"new": 3, "name": 9}


def test_metadata_of_a_landing() -> None:
    shown = metadata.landed(CHAIN, seconds=2)
    assert (shown["first batch"], shown["last batch"], shown["batches"]) == (1, 2, 2)
    assert shown["offsets before"].value == {"t": {"0": 0}}
    assert shown["offsets after"].value == {"t": {"0": 30}}
    assert (shown["read"], shown["landed"], shown["quarantined"], shown["filtered"]) == (30, 29, 1, 0)
    assert shown["records per second"] == 15
    assert metadata.landed([], seconds=0)["batches"] == 0


def test_dead_letters_that_a_landing_recovers_are_in_its_metadata() -> None:
    again = _batch(3, 30, 30, "c2", read=3, landed=3, recovered=3)
    assert metadata.landed([*CHAIN, again], seconds=2)["recovered"] == 3


def test_columns_have_the_names_of_their_system() -> None:
    kinds, named = ("iceberg", "clickhouse", "bigquery"), ["topic", "partition", "offset"]
    spec = specs.spec(*(specs.table(kind, name="a.t", metadata_columns=named) for kind in kinds))
    assets = KafkaPipeline("p", spec).definitions().resolve_asset_graph()
    found = {}
    for kind in kinds:
        schema = assets.get(dg.AssetKey([kind, "a", "t"])).metadata["dagster/column_schema"]
        found[kind] = [column.name for column in schema.columns]
    assert found == {
        "iceberg": ["id", "_topic", "__partition", "_offset"],
        "clickhouse": ["id", "_topic", "_partition", "_offset"],
        "bigquery": ["id", "_topic", "__partition", "_offset"],
    }


# Dagster wants one of a run that waits in the queue.
_ORIGIN = RemoteJobOrigin(RemoteRepositoryOrigin(GrpcServerCodeLocationOrigin("localhost", 1), "defs"), "x")
_WAITS_OR_RUNS = ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")


@pytest.mark.parametrize("launched", ["by the schedule", "by hand on assets", "by hand on one table"])
@pytest.mark.parametrize("status", _WAITS_OR_RUNS)
def test_a_run_under_way_is_known_however_it_was_launched(
    instance: dg.DagsterInstance, launched: str, status: str
) -> None:
    flow, table = Flow("t", ["append"], name="p"), dg.AssetKey(["iceberg", "tests", "p_append"])
    tags = {PIPELINE_TAG: "p"} if launched == "by the schedule" else {}
    keys = {"by hand on assets": {landing_key("p"), table}, "by hand on one table": {table}}
    assets = frozenset(keys[launched]) if launched in keys else None
    run = create_run_for_test(
        instance,
        job_name="x",
        status=dg.DagsterRunStatus[status],
        tags=tags,
        asset_selection=assets,
        remote_job_origin=_ORIGIN,
    )
    under_way = f"run {run.run_id[:8]} of p is {status.lower()}"
    assert busy_reason(instance, "p", flow.spec) == (None if status == "QUEUED" else under_way)
    alone = Free(left_out={table: under_way}, assets=[landing_key("p")])
    assert free_to_advance(instance, "p", flow.spec) == (alone if len(assets or keys) == 1 else Free(hold=under_way))
    assert busy_reason(instance, "other", Flow("t", ["append"], name="other").spec) is None


@pytest.mark.parametrize("status", ["SUCCESS", "FAILURE", "CANCELED"])
def test_a_run_that_has_ended_holds_nobody_up(instance: dg.DagsterInstance, status: str) -> None:
    create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus[status], tags={PIPELINE_TAG: "p"})
    assert busy_reason(instance, "p", Flow("t", ["append"], name="p").spec) is None


def _ended(instance: dg.DagsterInstance, run: dg.DagsterRun, step: str, event: dg.DagsterEventType) -> None:
    failed = event == dg.DagsterEventType.STEP_FAILURE
    data = StepFailureData(error=None, user_failure_data=None) if failed else StepSuccessData(duration_ms=1.0)
    ended = dg.DagsterEvent(event.value, run.job_name, step_key=step, event_specific_data=data)
    instance.handle_new_event(dg.EventLogEntry(None, "info", "", run.run_id, time.time(), step, run.job_name, ended))


@pytest.mark.parametrize("commit", ["each", "together"])
def test_what_a_run_has_done_is_free_for_the_next_one(instance: dg.DagsterInstance, commit: str) -> None:
    flow = Flow("t", ["append", "upsert", "upsert_delete"], name="p", overrides={"commit": commit})
    run = create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.STARTED, tags={PIPELINE_TAG: "p"})
    under_way = f"run {run.run_id[:8]} of p is started"
    tables = {mode: dg.AssetKey(["iceberg", "tests", f"p_{mode}"]) for mode in flow.modes}
    assert free_to_advance(instance, "p", flow.spec).hold == under_way

    _ended(instance, run, "p__landing__p", dg.DagsterEventType.STEP_SUCCESS)
    free = free_to_advance(instance, "p", flow.spec)
    assert (free.hold, free.assets, set(free.left_out or ())) == (None, [landing_key("p")], set(tables.values()))

    _ended(instance, run, "p__iceberg__tests__p_append", dg.DagsterEventType.STEP_SUCCESS)
    _ended(instance, run, "p__iceberg__tests__p_upsert", dg.DagsterEventType.STEP_FAILURE)
    request = free_to_advance(instance, "p", flow.spec).request("2026-01-01-00:00", {"why": "x"})
    others = [] if commit == "together" else [tables["append"], tables["upsert"]]
    assert request.asset_selection == [landing_key("p"), *others]
    assert f"iceberg/tests/p_upsert_delete: {under_way}" in request.tags[LEFT_OUT_TAG]

    instance.report_run_failed(run)
    free = free_to_advance(instance, "p", flow.spec)
    assert free == Free()
    assert free.request(None, {"why": "x"}) == dg.RunRequest(tags={"why": "x"})


def test_what_a_retry_from_failure_leaves_out_is_free(instance: dg.DagsterInstance) -> None:
    """It has only the steps that failed. Runs of other jobs of the pipeline have steps of other names."""
    flow = Flow("t", ["append", "upsert"], name="p")
    append, upsert = (table_key(table) for table in flow.spec.tables)
    for tags, steps in [
        ({PIPELINE_TAG: "p"}, [op_name("p", append)]),
        ({PIPELINE_TAG: "p", CONTINUOUS_TAG: "p"}, [continuous_op("p", append)]),
        ({PIPELINE_TAG: "p", COMMAND_TAG: COMMAND_WORKS}, ["replay"]),
    ]:
        run = create_run_for_test(
            instance, job_name="x", status=dg.DagsterRunStatus.STARTED, tags=tags, step_keys_to_execute=steps
        )
        free = free_to_advance(instance, "p", flow.spec)
        if steps == [op_name("p", append)]:
            assert (free.hold, free.assets, [*(free.left_out or ())]) == (None, [landing_key("p"), upsert], [append])
        else:
            assert free.hold, tags
        instance.report_run_failed(run)


def test_the_pipeline_goes_on_beside_a_backfill_but_nothing_else_replays_or_recovers(
    instance: dg.DagsterInstance,
) -> None:
    flow, table = Flow("t", ["append"], name="p"), dg.AssetKey(["iceberg", "tests", "p_append"])
    create_run_for_test(
        instance,
        job_name="x",
        status=dg.DagsterRunStatus.STARTED,
        tags={"dagster/backfill": "b"},
        asset_selection=frozenset({table}),
    )
    assert free_to_advance(instance, "p", flow.spec) == Free()
    assert "of p is started" in str(busy_reason(instance, "p", flow.spec))
    assert list(still_to_do(instance, "p", flow.spec)) == [table]


@pytest.mark.parametrize("state", [COMMAND_WAITS, COMMAND_WORKS])
def test_the_pipeline_goes_on_beside_a_command_until_that_has_its_turn(
    instance: dg.DagsterInstance, state: str
) -> None:
    flow, tags = Flow("t", ["append"], name="p"), {PIPELINE_TAG: "p", COMMAND_TAG: state}
    run = create_run_for_test(instance, job_name="p_replay", status=dg.DagsterRunStatus.STARTED, tags=tags)
    under_way = f"run {run.run_id[:8]} of p is started"
    assert free_to_advance(instance, "p", flow.spec) == Free(hold=None if state == COMMAND_WAITS else under_way)
    assert busy_reason(instance, "p", flow.spec) == under_way


_FLOW = Flow("t", ["append"])


@pytest.mark.parametrize(
    ("changes", "tags", "age", "answer"),
    [
        ({}, {}, 60, True),
        ({}, {}, 3700, False),
        ({"freshness": Freshness(warn_minutes=10, fail_minutes=20)}, {}, 400, False),
        ({}, {LEFT_OUT_TAG: "a table"}, 60, False),
        ({}, {FILE_TAG: "another file"}, 60, False),
    ],
)
def test_what_a_run_has_settled(
    changes: dict[str, object], tags: dict[str, str], age: float, answer: bool, instance: dg.DagsterInstance
) -> None:
    spec = _FLOW.spec.model_copy(update=changes)
    tags = {FILE_TAG: file_hash(spec), **tags}
    run = create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.STARTED, tags=tags)
    instance.report_engine_event("done", run)
    instance.handle_run_event(run.run_id, dg.DagsterEvent(dg.DagsterEventType.RUN_SUCCESS.value, "p"))
    record = instance.get_run_record_by_id(run.run_id)
    assert record
    assert record.end_time
    assert settles(record, spec, Free(), record.end_time + age) == answer


def test_a_run_without_a_paused_table_settles_as_long_as_it_is_paused(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the schedule starts a run at each tick, although nothing is new."""
    flow = Flow("t", ["append", "upsert"], name="p")
    paused, busy = (table_key(table) for table in flow.spec.tables)
    pauses.pause(instance, "p", flow.spec, flow.spec.tables[0], "anna")
    free = free_to_advance(instance, "p", flow.spec)
    asked = free.request(None, {PIPELINE_TAG: "p", FILE_TAG: file_hash(flow.spec), LANDED_TAG: "3"})
    run = create_run_for_test(
        instance, job_name="p", status=dg.DagsterRunStatus.STARTED, tags=asked.tags,
        asset_selection=frozenset(asked.asset_selection or ()),
    )  # fmt: skip
    instance.handle_run_event(run.run_id, dg.DagsterEvent(dg.DagsterEventType.RUN_SUCCESS.value, "p"))
    record = instance.get_run_record_by_id(run.run_id)
    assert record
    assert record.end_time
    now = record.end_time + 60
    assert settles(record, flow.spec, free, now)
    assert not settles(record, flow.spec, Free(), now), "the table was resumed"
    hangs = Free(left_out={busy: "run 1 of p is started"}, assets=[landing_key("p"), paused])
    assert not settles(record, flow.spec, hangs, now), "another table is left out"

    monkeypatch.setattr(idle, "look_at", lambda *_: Waiting({}, landing=0, tables=10, batches=3))
    assert "nothing new since" in str(idle.idle_reason(instance, "p", flow.spec, free)), "only the paused one is behind"
    assert idle.idle_reason(instance, "p", flow.spec, Free()) is None


def test_a_failed_run_settles_nothing(instance: dg.DagsterInstance) -> None:
    tags = {FILE_TAG: file_hash(_FLOW.spec)}
    run = create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.FAILURE, tags=tags)
    record = instance.get_run_record_by_id(run.run_id)
    assert record
    assert not settles(record, _FLOW.spec, Free(), time.time())


def test_a_table_in_a_runs_metadata_is_rows_of_plain_values() -> None:
    """As `batchmerge run --json` prints the topics of a pipeline with `for_each`."""
    columns = [dg.TableColumn("topic"), dg.TableColumn("read", "int")]
    table = dg.TableMetadataValue([dg.TableRecord({"topic": "a", "read": 3})], dg.TableSchema(columns))
    assert plain(table) == [{"topic": "a", "read": 3}]
    assert plain(dg.MetadataValue.int(5)) == 5


def test_events_of_each_topic_are_events_of_its_pipeline() -> None:
    one, each = specs.spec(), PipelineSpec.model_validate(_EACH)
    groups = ["shop", "shop__shop__orders", "shop2", "shop2__shop__orders", "other"]
    assert [group for group in groups if is_of(_complete(group), "shop", one)] == ["shop"]
    assert [group for group in groups if is_of(_complete(group), "shop", each)] == ["shop", "shop__shop__orders"]


_EACH = specs.document(
    specs.table("iceberg", "append", "shop.{topic[-1]}"),
    source={"topics": [], "pattern": r"shop\..+", "for_each": "topic"},
)


def _complete(group: str) -> Event:
    return Event("1", NOON, group, "run", CommitComplete("c1", 1))


def test_a_tick_reads_all_new_events_also_where_other_pipelines_have_hundreds(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One page in half a minute is less than a few pipelines with `interval` publish."""
    pages = [["other"] * 500, ["other"] * 500, ["p"], []]

    def page(_: object, __: object, cursor: str | None) -> tuple[list[Event], str]:
        at = int(cursor or 0)
        return [replace(_complete(group), id=f"{at}-{n}") for n, group in enumerate(pages[at])], str(min(at + 1, 3))

    monkeypatch.setattr(control, "read_events", page)
    monkeypatch.setattr(control, "KafkaCluster", lambda *_: None)
    monkeypatch.setattr(control, "load_connections", lambda: SimpleNamespace(get=lambda *_: None))

    @dg.job
    def report() -> None:
        return None

    waits = after_commit("p", Flow("t", ["append"], name="p").spec, report)
    ticked = waits(dg.build_sensor_context(instance))
    assert isinstance(ticked, dg.SensorResult)
    assert len(ticked.run_requests or []) == 1
    again = waits(dg.build_sensor_context(instance, cursor=ticked.cursor))
    assert isinstance(again, dg.SensorResult)
    assert not again.run_requests


def test_a_run_of_thousands_of_events_is_looked_up_once(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick has a minute, of which reading may take half."""
    spec = Flow("t", ["append"], name="p").spec
    (table,) = spec.tables
    made = [
        replace(_complete("p"), id=str(n), run_id=run, payload=CommitTable("c", n, table.connection, table.table))
        for n, run in enumerate(["elsewhere", "ours"] * 500)
    ]
    asked: list[str] = []

    def look_up(run: str) -> object:
        asked.append(run)
        return run if run == "ours" else None

    monkeypatch.setattr(instance, "get_run_by_id", look_up)
    monkeypatch.setattr(control, "_new_events", lambda *_: (made, control.ControlCursor()))
    found = control.control_sensor("p", spec)(dg.build_sensor_context(instance))
    assert isinstance(found, dg.SensorResult)
    assert (len(found.asset_events), sorted(asked)) == (500, ["elsewhere", "ours"])


def test_a_run_may_leave_out_any_number_of_tables() -> None:
    """PostgreSQL refuses a run with a tag of more than 2,700 bytes."""
    left_out = {dg.AssetKey(["clickhouse", "shop", f"table_{n}"]): "run 12345678 of p is started" for n in range(500)}
    free = Free(left_out=left_out, assets=[landing_key("p")])
    tags = free.request("2026-05-01-08:00", {}).tags
    assert len(tags[LEFT_OUT_TAG].encode()) < 2700
    assert "500 in all" in tags[LEFT_OUT_TAG]
    run = dg.DagsterRun("p", asset_selection=frozenset({landing_key("p")}), tags=tags)
    assert free.is_what_was_free(run)
    last = [*left_out][-1]
    assert not replace(free, left_out={**left_out, last: "paused"}).is_what_was_free(run)
