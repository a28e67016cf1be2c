"""`batchmerge metrics`: from tables and Dagster's events to Prometheus text, alert rules and the dashboard."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.test_utils import create_run_for_test

from jobs.members.known_topics import remember
from orchestration.components import metadata
from orchestration.components.member_metadata import landed_metadata, merged_metadata
from orchestration.metrics import measures
from orchestration.metrics.assets import Assets, pipeline_assets
from orchestration.metrics.events import EventTotals
from orchestration.metrics.measures import MEASURES, Sample
from orchestration.metrics.tables import table_samples
from orchestration.names import PIPELINE_TAG, landing_key, table_key
from orchestration.status.values import PipelineStatus, Status, TableStatus
from resources.errors import TerminalError
from tests.kit import specs
from tests.kit.batches import landed
from tests.kit.flow import Flow

_DOCS = Path(__file__).parents[2] / "docs" / "monitoring"
_MAY = datetime(2026, 5, 1, tzinfo=UTC)
_KEY = dg.AssetKey(["iceberg", "a", "t"])
_ASSETS = Assets({_KEY: ("p", "iceberg a.t")}, pipelines=frozenset("p"))


def test_tables_as_they_are_now() -> None:
    tables = [
        TableStatus(name="landing lake.p_tmp", batch=3, lag=0, seconds_behind=0.0, dead_letters=12),
        TableStatus(name="iceberg a.t", batch=2, lag=None, vtts=_MAY, caught_up_through=_MAY, dead_letters=0),
        TableStatus(name="clickhouse a.t", problem="no answer"),
    ]
    pipelines = [
        PipelineStatus(name="p", paused=True, tables=tables),
        PipelineStatus(name="q", tables=[], problem="no"),
    ]
    found = list(table_samples(Status(daemon=True, pipelines=pipelines)))
    assert set(found) == {
        Sample(measures.DAEMON, (), 1.0),
        Sample(measures.PAUSED, ("p",), 1.0),
        Sample(measures.UP, ("p", "landing"), 1.0),
        Sample(measures.BATCH, ("p", "landing"), 3.0),
        Sample(measures.LAG, ("p", "landing"), 0.0),
        Sample(measures.LAG_SECONDS, ("p", "landing"), 0.0),
        Sample(measures.DEAD_LETTERS, ("p", "landing"), 12.0),
        Sample(measures.UP, ("p", "iceberg a.t"), 1.0),
        Sample(measures.BATCH, ("p", "iceberg a.t"), 2.0),
        Sample(measures.VTTS, ("p", "iceberg a.t"), _MAY.timestamp()),
        Sample(measures.CAUGHT_UP, ("p", "iceberg a.t"), _MAY.timestamp()),
        Sample(measures.DEAD_LETTERS, ("p", "iceberg a.t"), 0.0),
        Sample(measures.UP, ("p", "clickhouse a.t"), 0.0),
        Sample(measures.PAUSED, ("q",), 0.0),
        Sample(measures.UP, ("q", "landing"), 0.0),
    }


def test_each_topic_has_labels_of_its_own() -> None:
    tables = [
        TableStatus(name="landing lake.p__a_tmp", topic="a", lag=1),
        TableStatus(name="iceberg lake.a", topic="a", lag=2),
        TableStatus(name="landing lake.p__b_tmp", topic="b", lag=3),
        TableStatus(name="topic c", topic="c", problem="no such topic"),
    ]
    found = list(table_samples(Status(pipelines=[PipelineStatus(name="p", tables=tables)])))
    lags = {s.labels: s.value for s in found if s.measure == measures.LAG}
    assert lags == {("p", "landing a"): 1, ("p", "iceberg lake.a"): 2, ("p", "landing b"): 3}
    assert Sample(measures.UP, ("p", "landing c"), 0.0) in found


def _merged(
    instance: dg.DagsterInstance,
    commit_id: str,
    inserted: int,
    hours: tuple[str, ...] = ("h",),
    run: dg.DagsterRun | None = None,
) -> dg.DagsterRun:
    run = run or create_run_for_test(instance, job_name="p", tags={PIPELINE_TAG: "p"})
    for hour in hours:
        event = dg.AssetMaterialization(
            _KEY,
            partition=hour,
            metadata={
                "batches": 2,
                "commit id": commit_id,
                "inserted": inserted,
                "seconds merge": 1.5,
            },
        )
        _report(instance, run, event)
    return run


def _report(instance: dg.DagsterInstance, run: dg.DagsterRun, event: dg.AssetMaterialization) -> None:
    from dagster._core.events import DagsterEvent, DagsterEventType, StepMaterializationData

    instance.report_dagster_event(
        DagsterEvent(
            event_type_value=DagsterEventType.ASSET_MATERIALIZATION.value,
            job_name="p",
            event_specific_data=StepMaterializationData(event),
        ),
        run.run_id,
    )


def test_totals_begin_with_the_process_and_count_each_work_once(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestration.metrics.events._PAGE", 2)
    _merged(instance, "before", 100)
    totals = EventTotals(instance)
    before = {(s.measure, s.labels): s.value for s in totals.samples(_ASSETS)}
    labels = ("p", "iceberg a.t")
    assert (measures.LAST_SUCCESS, labels) in before
    assert before[measures.BATCHES, labels] == 0

    _merged(instance, "one", 5)
    run = _merged(instance, "two", 7, hours=("h1", "h2", "h3"))  # a backfill reports the same work for each hour
    list(totals.samples(_ASSETS))
    _merged(instance, "two", 7, hours=("h4", "h5"), run=run)
    after = {(s.measure, s.labels): s.value for s in totals.samples(_ASSETS)}
    assert after[measures.BATCHES, labels] == 4
    assert after[measures.ROWS, (*labels, "inserted")] == 12
    assert after[measures.STAGE_SECONDS, (*labels, "merge")] == 3.0
    assert {(s.measure, s.labels): s.value for s in totals.samples(_ASSETS)} == after


def test_a_replay_lands_only_what_it_reads_again(instance: dg.DagsterInstance) -> None:
    """For hours that are landed its landing's step shows what was landed in them."""
    landing, batches = dg.AssetKey(["landing", "p"]), [landed(1), landed(2)]
    totals, assets = EventTotals(instance), Assets({landing: ("p", "landing")}, {}, frozenset("p"))
    assert not any(one.value for one in totals.samples(assets))
    found = dict[str, float]()
    for kind in (metadata.REPLAY_OF, "read again"):
        run = create_run_for_test(instance, job_name="__ASSET_JOB")
        shown = {kind: "hours", **metadata.landed(batches, 0.0)}
        _report(instance, run, dg.AssetMaterialization(landing, metadata=shown))
        found[kind] = sum(s.value for s in totals.samples(assets) if s.measure == measures.BATCHES)
    assert found == {metadata.REPLAY_OF: 0, "read again": 2}


def test_a_step_of_many_topics_counts_each(instance: dg.DagsterInstance) -> None:
    landing, step, own = dg.AssetKey(["landing", "p"]), dg.AssetKey(["iceberg", "each_topic"]), _KEY
    steps = {
        landing: {"a": ("p", "landing a"), "b": ("p", "landing b")},
        step: {"a": ("p", "iceberg a.t"), "b": ("p", "iceberg b.t")},
    }
    totals, assets = EventTotals(instance), Assets({own: ("p", "iceberg a.t")}, steps, frozenset("p"))
    assert not any(one.value for one in totals.samples(assets))

    run = create_run_for_test(instance, job_name="p", tags={PIPELINE_TAG: "p"})
    batch, problem = landed(1), TerminalError("no")
    for number in (1, 2):  # a continuous run reports again and again
        shown = landed_metadata({"a": [batch]}, {"b": problem}, float(number))
        _report(instance, run, dg.AssetMaterialization(landing, metadata=shown))
    _report(instance, run, dg.AssetMaterialization(step, metadata={"inserted": 9}))
    work: dict[str, Any] = {"batches": 2, "commit id": "one", "inserted": 5, "seconds merge": 1.5}
    _report(instance, run, dg.AssetMaterialization(own, metadata=work))
    found = {(s.measure, s.labels): s.value for s in totals.samples(assets)}

    assert found[measures.BATCHES, ("p", "landing a")] == 2
    assert found[measures.ROWS, ("p", "landing a", "landed")] == 2 * batch.counts.landed > 0
    assert found[measures.ROWS, ("p", "iceberg a.t", "inserted")] == 5
    assert found[measures.STAGE_SECONDS, ("p", "iceberg a.t", "merge")] == 1.5
    succeeded = {labels[1] for measure, labels in found if measure == measures.LAST_SUCCESS}
    assert succeeded == {"landing a", "iceberg a.t", "iceberg b.t"}
    assert {labels[1] for measure, labels in found if measure == measures.ROWS} == {"landing a", "iceberg a.t"}


def test_a_step_is_no_success_of_topics_that_it_did_not_try(instance: dg.DagsterInstance) -> None:
    """A run of some topics, and a step of a paused table."""
    landing, step = dg.AssetKey(["landing", "p"]), dg.AssetKey(["iceberg", "each_topic"])
    steps = {
        landing: {"a": ("p", "landing a"), "b": ("p", "landing b")},
        step: {"a": ("p", "iceberg a.t"), "b": ("p", "iceberg b.t")},
    }
    totals, assets = EventTotals(instance), Assets({_KEY: ("p", "iceberg a.t")}, steps, frozenset("p"))
    run = create_run_for_test(instance, job_name="p", tags={PIPELINE_TAG: "p"})

    def last() -> set[Sample]:
        return {one for one in totals.samples(assets) if one.measure == measures.LAST_SUCCESS}

    def succeeded(key: dg.AssetKey, shown: dict[str, Any]) -> set[str]:
        before = last()
        _report(instance, run, dg.AssetMaterialization(key, metadata=shown))
        return {one.labels[1] for one in last() - before}

    assert succeeded(landing, {**landed_metadata({}, {}, 1.0), **metadata.tried(["b"], None)}) == {"landing b"}
    assert succeeded(step, {**merged_metadata([], {}), **metadata.tried(["b"], None)}) == {"iceberg b.t"}
    failed = merged_metadata([], {"b": TerminalError("no")})
    assert succeeded(step, {**failed, **metadata.tried(["b"], None)}) == set()
    assert succeeded(step, {**merged_metadata([], {}), **metadata.tried([], "it is paused")}) == set()
    assert succeeded(_KEY, {"batches": 0, **metadata.tried([], "it is paused")}) == set()
    assert succeeded(step, {**merged_metadata([], {}), **metadata.tried([], None)}) == {"iceberg a.t", "iceberg b.t"}


def test_assets_that_show_up_later_are_followed_from_the_begin_of_the_process(instance: dg.DagsterInstance) -> None:
    _merged(instance, "before", 100)
    totals = EventTotals(instance)
    list(totals.samples(Assets({dg.AssetKey("other"): ("p", "other"), _KEY: ("p", "iceberg a.t")})))
    new, labels = dg.AssetKey(["iceberg", "new"]), ("p", "iceberg new")
    run = create_run_for_test(instance, job_name="p", tags={PIPELINE_TAG: "p"})
    _report(instance, run, dg.AssetMaterialization(new, metadata={"commit id": "one", "inserted": 3}))
    found = {(s.measure, s.labels): s.value for s in totals.samples(Assets({new: labels}))}
    assert found[measures.ROWS, (*labels, "inserted")] == 3


def test_the_assets_of_a_pipeline_of_many_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestration.files.FOLDER", tmp_path / "defs")
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path / "home"))
    source = {"pattern": r"s\..+", "for_each": "topic", "value": {"format": "json", "columns": {"id": "long"}}}
    tables = [{"kind": "iceberg", "table": "lake.{topic[1]}", "mode": "append"}]
    specs.write(tmp_path / "defs", "many", {"source": source, "tables": tables})
    specs.write(tmp_path / "defs", "one", Flow("t", ["append"], name="one").spec_document)
    remember("many", ["s.a", "s.b"])
    found = pipeline_assets()
    one = table_key(Flow("t", ["append"], name="one").spec.tables[0])
    assert dict(found.own) == {
        dg.AssetKey(["iceberg", "lake", "a"]): ("many", "iceberg lake.a"),
        dg.AssetKey(["iceberg", "lake", "b"]): ("many", "iceberg lake.b"),
        landing_key("one"): ("one", "landing"),
        one: ("one", "iceberg tests.one_append"),
    }
    assert dict(found.steps) == {
        landing_key("many"): {"s.a": ("many", "landing s.a"), "s.b": ("many", "landing s.b")},
        dg.AssetKey(["iceberg", "lake", "each_topic_1"]): {
            "s.a": ("many", "iceberg lake.a"),
            "s.b": ("many", "iceberg lake.b"),
        },
    }
    assert found.pipelines == {"many", "one"}


def test_runs_are_counted_by_how_they_ended(instance: dg.DagsterInstance) -> None:
    totals = EventTotals(instance)
    list(totals.samples(_ASSETS))
    for status in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS):
        create_run_for_test(instance, job_name="p", status=status, tags={PIPELINE_TAG: "p"})
    create_run_for_test(instance, job_name="q", status=dg.DagsterRunStatus.FAILURE, tags={PIPELINE_TAG: "q"})
    for key in (_KEY, dg.AssetKey("of others")):
        status, keys = dg.DagsterRunStatus.CANCELED, frozenset({key})
        create_run_for_test(instance, job_name="__ASSET_JOB", status=status, asset_selection=keys)
    for _ in range(2):
        found = {(s.measure, s.labels): s.value for s in totals.samples(_ASSETS)}
        assert found[measures.RUNS, ("p", "success")] == 2
        assert found[measures.RUNS, ("p", "failure")] == 1
        assert found[measures.RUNS, ("p", "canceled")] == 1, "a backfill has no tag of the pipeline"
        assert (measures.RUNS, ("q", "failure")) not in found


def _expressions(where: Path) -> list[str]:
    if where.suffix == ".yaml":
        return [r["expr"] for g in yaml.safe_load(where.read_text())["groups"] for r in g["rules"]]
    return [t["expr"] for panel in json.loads(where.read_text())["panels"] for t in panel["targets"]]


@pytest.mark.parametrize("name", ["alerts.yaml", "dashboard.json"])
def test_rules_and_dashboard_name_metrics_and_labels_that_exist(name: str) -> None:
    known = {measure.name: measure for measure in MEASURES}
    labels = {label for measure in MEASURES for label in measure.labels}
    expressions = _expressions(_DOCS / name)
    assert expressions
    for expression in expressions:
        used = set(re.findall(r"\bbatchmerge_\w+", expression))
        assert used
        assert used <= known.keys()
        grouped = [g for found in re.findall(r"by \(([^)]*)\)", expression) for g in re.split(r",\s*", found)]
        matched = re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", expression)
        assert {*grouped, *matched} <= labels


def test_the_page_lists_every_metric() -> None:
    page = (_DOCS.parent / "monitoring.md").read_text()
    assert {m.name for m in MEASURES} == set(re.findall(r"`(batchmerge_\w+)`", page))


def test_totals_are_there_before_the_first_event(instance: dg.DagsterInstance) -> None:
    """`increase` compares with the value before: a total that appeared with the first failure would hide it."""
    totals, labels = EventTotals(instance), ("p", "iceberg a.t")
    before = {(s.measure, s.labels): s.value for s in totals.samples(_ASSETS)}
    zero = [(measures.RUNS, ("p", status)) for status in ("success", "failure", "canceled")]
    assert before == dict.fromkeys([*zero, (measures.RETRIES, ("p",)), (measures.BATCHES, labels)], 0.0)
    create_run_for_test(instance, job_name="p", status=dg.DagsterRunStatus.FAILURE, tags={PIPELINE_TAG: "p"})
    after = {(s.measure, s.labels): s.value for s in totals.samples(_ASSETS)}
    assert after == {**before, (measures.RUNS, ("p", "failure")): 1.0}


def test_a_pipeline_that_is_gone_has_no_last_success(instance: dg.DagsterInstance) -> None:
    """An alert on its age would go on until `batchmerge metrics` is started again."""
    totals = EventTotals(instance)
    _merged(instance, "one", 5)
    assert measures.LAST_SUCCESS in {one.measure for one in totals.samples(_ASSETS)}
    assert list(totals.samples(Assets())) == []
