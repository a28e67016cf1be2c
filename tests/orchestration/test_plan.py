"""The plan shows what the next run does, and does nothing."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg
import pytest

from jobs.planning.run_plan import plan_run, plan_text
from resources.connections import Connections
from tests.kit.flow import Flow
from tests.kit.records import Record, bootstrap, produce, random_changes, upserts
from tests.orchestration.launching import advance, definitions

Topic = Callable[..., str]


def test_plan_shows_the_run_that_then_happens(
    connections: Connections, topic: Topic, instance: dg.DagsterInstance
) -> None:
    flow = Flow(topic(partitions=2), ["upsert_delete"], max_records=60)
    produce(bootstrap(connections), flow.topic, random_changes(seed=3, count=100, keys=9, partitions=2))

    plan = plan_run(flow.pipeline(connections))
    again = plan_run(flow.pipeline(connections))

    assert plan.batch
    assert again.batch
    assert plan.batch.ranges == again.batch.ranges
    assert (plan.batch.number, plan.records, plan.waiting) == (1, 60, 100)
    assert plan.steps == [f"create landing.{flow.name}_tmp"]
    assert list(plan.tables[0].steps) == [f"create iceberg {flow.table('upsert_delete')}"]
    assert "MERGE INTO" in plan.tables[0].sql
    assert flow.pipeline(connections).intermediate.catalog.load(flow.table("upsert_delete")) is None

    job = definitions(flow).resolve_job_def(f"{flow.name}_plan").execute_in_process(instance=instance)
    (shown,) = [event.step_output_data.metadata["plan"] for event in job.all_events if event.is_successful_output]
    assert isinstance(shown, dg.MarkdownMetadataValue)
    assert f"{flow.table('upsert_delete')} (upsert_delete): without a batch yet; merges batch 1" in shown.value
    assert "MERGE INTO" in shown.value
    assert flow.pipeline(connections).intermediate.catalog.load(flow.table("upsert_delete")) is None

    result = advance(instance, flow)

    landed = flow.pipeline(connections).intermediate.landed().batches
    assert result.success
    assert dict(landed[0].batch.ranges) == dict(plan.batch.ranges)
    after = plan_run(flow.pipeline(connections))
    assert after.batch
    assert (after.batch.number, after.records, after.steps, list(after.tables[0].steps)) == (2, 40, [], [])
    assert "batch 2 of up to 40 records" in plan_text(after)


@pytest.mark.usefixtures("clickhouse")
def test_plan_before_the_key_is_known(connections: Connections, topic: Topic) -> None:
    flow = Flow(topic(), [])
    flow.overrides["source"] = {
        "topics": [flow.topic],
        "key": {"format": "json"},
        "value": {"format": "json", "columns": {"name": "string"}},
    }
    flow.overrides["tables"] = [
        {"kind": kind, "table": f"tests.{flow.name}", "mode": "upsert_delete"} for kind in ("iceberg", "clickhouse")
    ]
    flow.overrides["changes"] = {}

    plan = plan_run(flow.pipeline(connections))
    assert (plan.batch, plan.problems) == (None, [])
    assert [list(table.steps) for table in plan.tables] == [[], []], "no table is made yet"
    shown = plan_text(plan)
    assert shown.count("    not known yet: the key columns (`…`): the keys of the first records give them") == 2
    assert "ON t.`…` = s.`…`" in shown
    assert "`name`" in shown

    produce(bootstrap(connections), flow.topic, [Record(0, None, {"name": "a"})])
    shown = plan_text(plan_run(flow.pipeline(connections)))
    assert "FAILS: pipeline" in shown
    assert "the newest records have no key" in shown
    assert "not known yet: the key columns" in shown

    produce(bootstrap(connections), flow.topic, upserts(0, 1))
    shown = plan_text(plan_run(flow.pipeline(connections)))
    assert "not known yet" not in shown
    assert "ON t.`id` = s.`id`" in shown
    assert f"create iceberg tests.{flow.name}" in shown


def test_plan_of_a_broken_pipeline_says_what_fails(stack: object, instance: dg.DagsterInstance) -> None:
    del stack
    flow = Flow("no-such-topic", ["append"])
    result = (
        definitions(flow)
        .resolve_job_def(f"{flow.name}_plan")
        .execute_in_process(instance=instance, raise_on_error=False)
    )
    failed = [event for event in result.all_events if event.is_step_failure]
    assert len(failed) == 1
    assert "no-such-topic" in str(failed[0].step_failure_data.user_failure_data)
