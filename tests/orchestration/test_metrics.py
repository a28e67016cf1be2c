"""`batchmerge metrics`: from tables and Dagster's events to Prometheus text, alert rules and the dashboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.test_utils import create_run_for_test
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from orchestration.cli.pipelines import PipelineStatus, Status, TableStatus
from orchestration.metrics import measures
from orchestration.metrics.events import EventTotals
from orchestration.metrics.exporter import provider
from orchestration.metrics.measures import MEASURES, Sample
from orchestration.metrics.tables import table_samples
from orchestration.names import PIPELINE_TAG

_DOCS = Path(__file__).parents[2] / "docs" / "monitoring"
_MAY = datetime(2026, 5, 1, tzinfo=UTC)
_KEY = dg.AssetKey(["iceberg", "a", "t"])
_ASSETS = {("p", "iceberg a.t"): _KEY}


def test_tables_as_they_are_now() -> None:
    tables = [
        TableStatus(name="landing lake.p_tmp", batch=3, lag=0, seconds_behind=0.0, dead_letters=12),
        TableStatus(name="iceberg a.t", batch=2, lag=None, vtts=_MAY, caught_up_through=_MAY, dead_letters=0),
        TableStatus(name="clickhouse a.t", problem="no answer"),
    ]
    found = list(table_samples(Status(daemon=True, pipelines=[PipelineStatus(name="p", paused=True, tables=tables)])))
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
    }


def _merged(instance: dg.DagsterInstance, commit_id: str, inserted: int, hours: tuple[str, ...] = ("h",)) -> None:
    run = create_run_for_test(instance, job_name="p", tags={PIPELINE_TAG: "p"})
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


def test_totals_begin_with_the_process_and_count_each_work_once(instance: dg.DagsterInstance) -> None:
    _merged(instance, "before", 100)
    totals = EventTotals(instance)
    before = {(s.measure, s.labels): s.value for s in totals.samples(_ASSETS)}
    labels = ("p", "iceberg a.t")
    assert (measures.LAST_SUCCESS, labels) in before
    assert (measures.BATCHES, labels) not in before

    _merged(instance, "one", 5)
    _merged(instance, "two", 7, hours=("h1", "h2", "h3"))  # a backfill reports the same work for each hour
    after = {(s.measure, s.labels): s.value for s in totals.samples(_ASSETS)}
    assert after[measures.BATCHES, labels] == 4
    assert after[measures.ROWS, (*labels, "inserted")] == 12
    assert after[measures.STAGE_SECONDS, (*labels, "merge")] == 3.0
    assert {(s.measure, s.labels): s.value for s in totals.samples(_ASSETS)} == after


def test_runs_are_counted_by_how_they_ended(instance: dg.DagsterInstance) -> None:
    totals = EventTotals(instance)
    list(totals.samples(_ASSETS))
    for status in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS):
        create_run_for_test(instance, job_name="p", status=status, tags={PIPELINE_TAG: "p"})
    create_run_for_test(instance, job_name="q", status=dg.DagsterRunStatus.FAILURE, tags={PIPELINE_TAG: "q"})
    for _ in range(2):
        found = {(s.measure, s.labels): s.value for s in totals.samples(_ASSETS)}
        assert found[measures.RUNS, ("p", "success")] == 2
        assert found[measures.RUNS, ("p", "failure")] == 1
        assert (measures.RUNS, ("q", "failure")) not in found


def _one_of_each() -> Iterator[Sample]:
    for number, measure in enumerate(MEASURES):
        yield Sample(measure, tuple(f"<{label}>" for label in measure.labels), float(number))


def test_prometheus_reads_every_metric_under_its_name() -> None:
    registry = CollectorRegistry()
    made = provider(_one_of_each, 0.0, registry)
    families = {f.name: f for f in text_string_to_metric_families(generate_latest(registry).decode())}
    made.shutdown()
    for number, measure in enumerate(MEASURES):
        family = families[measure.name.removesuffix("_total") if measure.counter else measure.name]
        (sample,) = (s for s in family.samples if s.name == measure.name)
        assert (sample.value, family.documentation) == (number, measure.text)
        assert sample.labels == {label: f"<{label}>" for label in measure.labels}
        assert (family.type == "counter") is measure.counter


def test_one_look_serves_all_metrics_of_a_scrape() -> None:
    looks = []

    def look() -> Iterator[Sample]:
        looks.append(1)
        return _one_of_each()

    registry = CollectorRegistry()
    made = provider(look, 3600.0, registry)
    generate_latest(registry)
    generate_latest(registry)
    made.shutdown()
    assert len(looks) == 1


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
