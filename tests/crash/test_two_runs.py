"""A run that sleeps while others go past it, and two runs at once: no row of any kind of table is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from resources.connections import Connections
from tests.kit.bigquery import bigquery_flow
from tests.kit.clickhouse import clickhouse_flow
from tests.kit.driven_log import DrivenLog
from tests.kit.flow import Flow
from tests.kit.kinds import KINDS, unavailable
from tests.kit.processes import asleep, end_of

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("project")]

FLOWS: dict[str, Callable[..., Flow]] = {"iceberg": Flow, "clickhouse": clickhouse_flow, "bigquery": bigquery_flow}
# What a run says of a newer one that went past it, and where it sleeps: before each of its effects.
REFUSED = {
    "iceberg": ("removed this attempt's branch", "committed state has changed"),
    "clickhouse": ("Interrupted",),
    "bigquery": ("another run has committed",),
}
SLEEPERS = [
    ("iceberg", "land.written"),
    ("iceberg", "land.written:2"),  # read ahead, while the first batch is published
    ("iceberg", "merge.written"),
    *(("clickhouse", f"clickhouse.{step}") for step in ("leased", "before", "inserted", "after")),
    *(("bigquery", f"bigquery.{step}") for step in ("begun", "staged", "loaded", "merged")),
]

NewLog = Callable[..., DrivenLog]


@pytest.fixture
def new_log(stack: Path, connections: Connections, topic: Callable[..., str]) -> NewLog:
    def make(kind: str, modes: list[str], max_records: int, bad: float = 0.02, **options: object) -> DrivenLog:
        if reason := unavailable(KINDS[kind]):
            pytest.skip(reason)
        flow = FLOWS[kind](topic(partitions=2), modes, max_records, **options)
        return DrivenLog(flow, connections, stack, bad)

    return make


@pytest.mark.parametrize(("kind", "point"), SLEEPERS)
def test_run_that_wakes_up_late_is_refused(kind: str, point: str, new_log: NewLog) -> None:
    """Another run with a longer range goes past it, and another after that."""
    # BigQuery's tasks write files of rows with their offset, which are not the landed ones.
    options = {"metadata_columns": ["offset"]} if kind == "bigquery" else {}
    log = new_log(kind, ["append"] if kind != "iceberg" else ["append", "upsert_delete"], 60, **options)
    log.grow()
    sleeper = log.start(point)
    with asleep(sleeper):
        log.grow()
        for _ in range(2):
            log.finish(point)
    _, output = end_of(sleeper)
    assert any(text in output for text in REFUSED[kind]), output
    log.check(f"after {point} woke up")


@pytest.mark.parametrize(("kind", "bad"), [*((kind, 0.02) for kind in FLOWS), ("bigquery", 0.0)])
def test_two_runs_at_once(kind: str, bad: float, new_log: NewLog) -> None:
    log = new_log(kind, ["append", "upsert_delete"], 60, bad)
    for _ in range(3):
        log.grow()
        log.two_at_once()
        log.finish("two at once")
