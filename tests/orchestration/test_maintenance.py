"""The maintenance job in Dagster: what it shows, and that it leaves the pipeline's own runs alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from threading import Thread
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._core.test_utils import create_run_for_test

from jobs.maintenance.report import Done
from jobs.members.members import Members
from jobs.spec.members import Member
from jobs.spec.pipeline import PipelineSpec
from orchestration.cli import maintain as command
from orchestration.components import KafkaPipeline, maintenance
from orchestration.components.launch import Launch
from orchestration.components.maintenance import maintained_pools
from orchestration.names import MAINTENANCE_TAG, PIPELINE_TAG, landing_key, pool, table_key
from orchestration.pools.pool_waits import PoolWaits, holders
from orchestration.pools.turns import turn as real_turn
from orchestration.sensors.busy import busy_reason
from resources.connections import Connections
from resources.errors import Unavailable
from tests.kit import many_topics, specs
from tests.kit.flow import Flow
from tests.kit.records import bootstrap, produce, random_changes
from tests.orchestration.launching import advance, definitions

Topic = Callable[..., str]


def _counts(observation: dg.AssetObservation) -> dict[str, int]:
    return {name: shown.value for name, shown in observation.metadata.items() if isinstance(shown.value, int)}


def test_maintenance_shows_what_it_did(connections: Connections, topic: Topic, instance: dg.DagsterInstance) -> None:
    maintenance = {"compaction": {"min_input_files": 2}, "snapshots": {"keep_days": 1e-6, "keep_last": 1}}
    flow = Flow(topic(), ["upsert"], max_records=20, overrides={"maintenance": maintenance})
    for seed in (3, 4):
        produce(bootstrap(connections), flow.topic, random_changes(seed, count=20, keys=9, partitions=1))
        assert advance(instance, flow, until_caught_up=True).success

    result = definitions(flow).resolve_job_def(f"{flow.name}_maintenance").execute_in_process(instance=instance)

    observed = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    shown = {observation.asset_key: _counts(observation) for observation in observed}
    landing, table = shown[landing_key(flow.name)], shown[table_key(flow.spec.tables[0])]
    assert landing["landed: batches removed"] == 0
    assert landing["compaction: files before"] >= landing["compaction: files after"] == 1
    assert table["snapshots: snapshots removed"] > 0
    assert table["compaction: files after"] == 1
    assert table["compaction: bytes before"] > 0
    assert busy_reason(instance, flow.name, flow.spec) is None


@pytest.mark.parametrize(("options", "running"), [({}, True), ({"enabled": False}, False)])
def test_schedule_is_on_where_the_file_says_so(options: dict[str, object], running: bool) -> None:
    flow = Flow("t", ["append"], overrides={"maintenance": {"cron": "0 4 * * 0", **options}})
    made = definitions(flow)
    schedule = made.resolve_schedule_def(f"{flow.name}_maintenance_schedule")
    assert schedule.cron_schedule == "0 4 * * 0"
    assert (schedule.default_status == dg.DefaultScheduleStatus.RUNNING) == running
    assert PIPELINE_TAG not in made.resolve_job_def(f"{flow.name}_maintenance").tags


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED])
def test_a_run_of_maintenance_does_not_start_beside_the_one_before(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus
) -> None:
    made = definitions(Flow("t", ["append"], name="p"), Flow("t", ["upsert"], name="q"))

    def starts(name: str) -> bool:
        with dg.build_schedule_context(instance=instance) as context:
            tick = made.resolve_schedule_def(f"{name}_maintenance_schedule").evaluate_tick(context)
        assert bool(tick.run_requests) or f"of {name}_maintenance is {status.value.lower()}" in str(tick.skip_message)
        return bool(tick.run_requests)

    create_run_for_test(
        instance, job_name="p_maintenance", status=dg.DagsterRunStatus.FAILURE, tags={MAINTENANCE_TAG: "p"}
    )
    assert (starts("p"), starts("q")) == (True, True)
    create_run_for_test(instance, job_name="p_maintenance", status=status, tags={MAINTENANCE_TAG: "p"})
    assert (starts("p"), starts("q")) == (False, True)


def test_tables_that_somebody_else_looks_after_are_left_alone() -> None:
    flow = Flow("t", ["append", "upsert"])
    flow.overrides["maintenance"] = {"skip_tables": [flow.table("append")]}
    ops = definitions(flow).resolve_job_def(f"{flow.name}_maintenance").nodes
    assert len(ops) == 2
    assert not any("append" in op.name for op in ops)


def test_a_table_of_one_system_alone_can_be_left_alone() -> None:
    flow = Flow("t", ["append"], name="p")
    flow.overrides["tables"] = [
        {"kind": kind, "table": "air.flights", "mode": "append"} for kind in ("iceberg", "clickhouse")
    ]
    flow.overrides["maintenance"] = {"skip_tables": ["iceberg air.flights"]}
    ops = definitions(flow).resolve_job_def("p_maintenance").nodes
    assert {op.name for op in ops} == {"p__landing__p__maintenance", "p__clickhouse__air__flights__maintenance"}


def test_merges_get_their_turn_between_two_tasks(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = specs.spec(specs.table(name="n.t"))
    (table,), seen, threads = spec.tables, list[str](), list[Thread]()
    held, storage = pool(table_key(table)), instance.event_log_storage
    storage.set_concurrency_slots(held, 1)
    run = create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.STARTED)

    def merge() -> None:
        while not storage.claim_concurrency_slot(held, run.run_id, "merge").is_claimed:
            time.sleep(0.05)
        seen.append("merge")
        storage.free_concurrency_slot_for_step(run.run_id, "merge")

    def tasks(*_: object) -> Iterator[Done]:
        assert not storage.claim_concurrency_slot(held, run.run_id, "merge").is_claimed
        threads.append(Thread(target=merge))
        threads[0].start()
        for task in ("first", "second"):
            assert "works on iceberg/n/t" in holders(instance, [held])[0]
            seen.append(task)
            yield Done(task, "n.t", {"files": 1})

    place = SimpleNamespace(identifier="lake.p_tmp")
    opened = SimpleNamespace(
        spec=spec,
        tables=spec.tables,
        intermediate=place,
        table=lambda n: spec.tables[n],
        destination_of=lambda _: SimpleNamespace(name="iceberg n.t"),
        in_time=lambda _, __, work, ___: work(),
    )
    monkeypatch.setattr(Launch, "open", lambda *_: opened)
    monkeypatch.setattr(maintenance, "maintain_landing", lambda _: iter(()))
    monkeypatch.setattr(maintenance, "maintain_table", tasks)

    job = KafkaPipeline("p", spec).definitions().resolve_job_def("p_maintenance")
    result = job.execute_in_process(instance=instance, raise_on_error=False)

    assert result.success
    threads[0].join()
    assert seen == ["first", "merge", "second"]
    assert holders(instance, [held]) == []
    shown = {e.asset_key: e.asset_observation_data.asset_observation for e in result.get_asset_observation_events()}
    assert _counts(shown[table_key(table)]) == {"first: files": 1, "second: files": 1}


def test_tables_of_many_topics_are_maintained_a_few_at_a_time(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = PipelineSpec.model_validate(many_topics.document(batch={"at_once": 2}))
    pools = [pool(landing_key("many")), *(pool(table_key(table)) for table in spec.tables)]
    for one in pools:
        instance.event_log_storage.set_concurrency_slots(one, 1)
    members = Members("many", spec, Connections({}, ""), "", ())
    topics = [Member(topic, topic, spec) for topic in many_topics.topics(5)]
    done = list[tuple[str, list[str]]]()

    def tasks(pipeline: SimpleNamespace, *_: object) -> Iterator[Done]:
        done.append((pipeline.topic, [one for one in pools if holders(instance, [one])]))
        yield Done("compaction", pipeline.topic, {"files": 1})

    def open_member(_members: Members, member: Member, _session: object) -> object:
        return SimpleNamespace(
            topic=member.key,
            spec=spec,
            tables=spec.tables,
            intermediate=SimpleNamespace(identifier=member.key),
            table=lambda n: spec.tables[n],
            destination_of=lambda table: SimpleNamespace(name=table.title),
            in_time=lambda _, __, work, ___: work(),
        )

    turns = list[list[str]]()

    @contextmanager
    def turn(context: dg.OpExecutionContext, claimed: Collection[str], waits: PoolWaits) -> Iterator[None]:
        turns.append([*claimed])
        with real_turn(context, claimed, waits=waits):
            yield

    monkeypatch.setattr(Launch, "members", lambda *_: members)
    monkeypatch.setattr(Members, "known", lambda _: topics)
    monkeypatch.setattr(Members, "open", open_member)
    monkeypatch.setattr(maintenance, "maintain_landing", tasks)
    monkeypatch.setattr(maintenance, "maintain_table", tasks)
    monkeypatch.setattr(maintenance, "turn", turn)

    job = KafkaPipeline("many", spec).definitions().resolve_job_def("many_maintenance")
    assert job.execute_in_process(instance=instance, raise_on_error=False).success

    assert sorted(turns) == sorted([one] for one in pools for _ in range(3))
    assert sorted(held for _, held in done) == sorted([one] for one in pools for _ in topics)


def test_what_a_step_did_before_it_was_tried_again_counts() -> None:
    tries: list[dict[str, Any]] = [
        {"compaction: files": 3, "compaction: note": "busy"},
        {"compaction: files": 0, "snapshots: removed": 1},
    ]
    seen = [dg.AssetObservation(["iceberg", "n", "t"], metadata=shown) for shown in tries]
    events = [SimpleNamespace(asset_observation_data=SimpleNamespace(asset_observation=one)) for one in seen]
    result: Any = SimpleNamespace(get_asset_observation_events=lambda: events)
    counted = {"compaction: files": 3, "compaction: note": "busy", "snapshots: removed": 1}
    assert command._done(result) == {"iceberg/n/t": counted}


def test_a_command_that_is_not_to_wait_names_who_holds_a_table(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = specs.spec(specs.table(name="n.t"), specs.table(name="n.u"), maintenance={"skip_tables": ["n.u"]})
    assert maintained_pools(Launch("p", spec)) == {"landing/p", "iceberg/n/t"}
    run = create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.STARTED)
    instance.event_log_storage.set_concurrency_slots("iceberg/n/t", 1)
    assert instance.event_log_storage.claim_concurrency_slot("iceberg/n/t", run.run_id, "step").is_claimed
    monkeypatch.setattr("orchestration.cli.run.pipeline_spec", lambda _: spec)
    monkeypatch.setattr(command, "dagster_instance", lambda: nullcontext(instance))

    done = CliRunner().invoke(command.maintain, ["p", "--no-wait"])

    assert isinstance(done.exception, Unavailable), done.output
    assert "works on iceberg/n/t" in str(done.exception)
