"""kill -9 of the run of a pipeline with several topics (`for_each`), when some of them have passed a boundary.

Their records are read by one Spark job, one more merges what takes one task of each table, one transaction has
the events of several. The next run goes on: every table of every topic is right, and each batch is published once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from jobs import failpoints
from jobs.connections_file import load_connections
from jobs.members.members import Members
from jobs.spec.pipeline import PipelineSpec
from resources.connections import Connections
from tests.kit import model
from tests.kit.crash_log import RUN, merge_points
from tests.kit.events import check_all_published, check_repeated, events
from tests.kit.kinds import KINDS, runnable, unavailable
from tests.kit.model import Row
from tests.kit.project import Project
from tests.kit.records import COLUMNS, KEY, Record, bootstrap, produce, random_changes

pytestmark = pytest.mark.crash

TABLES = ("orders", "items", "clients")
MODE = "upsert_delete"
SHOWN = [kind for kind in ("iceberg", "clickhouse", "bigquery") if runnable(KINDS[kind])]


@dataclass
class Shop:
    """Three topics, each with a table of every kind; their logs grow from kill to kill.

    Attributes:
        prefix: of the topics' and tables' names.
        name: the pipeline that has them now.
    """

    project: Project
    topics: dict[str, str]
    prefix: str
    records: dict[str, list[Record]] = field(default_factory=lambda: {table: [] for table in TABLES})

    def __post_init__(self) -> None:
        self.name = self.prefix
        self.project.write(self.name, self.document)

    @property
    def connections(self) -> Connections:
        return load_connections(self.project.connections)

    @property
    def document(self) -> dict[str, object]:
        tables = [
            {"kind": kind, "table": f"tests.{self.prefix}_{kind}_{{table}}", "mode": MODE, **KINDS[kind].options}
            for kind in SHOWN
        ]
        return {
            "source": {
                "pattern": rf"{self.prefix}\.(?P<table>.+)-[0-9a-f]{{8}}",
                "for_each": "topic",
                "key": {"format": "json", "columns": KEY},
                "value": {"format": "json", "columns": COLUMNS},
            },
            "changes": {"key": {"columns": ["id"]}, "op": {"field": "op"}},
            "batch": {"max_records": 60},
            "control": {"topic": f"control-{self.prefix}", "time_limit_seconds": 300},
            "tables": tables,
        }

    def grow(self) -> None:
        for table, records in self.records.items():
            more = random_changes(len(records), 100, 30, 2, 0.02)
            produce(bootstrap(self.connections), self.topics[table], more)
            records.extend(more)

    def rename(self) -> tuple[str, ...]:
        """The pipeline has a new name; returns the command that takes its tables over."""
        before, self.name = self.name, f"{self.prefix}_{uuid.uuid4().hex[:6]}"
        self.project.write(self.name, self.document)
        self.project.remove(before)
        return "offsets", "take-over", self.name, "--from", before, "--yes"

    def finish(self, why: str) -> None:
        """Another run, and then every table is as it has to be, and every batch is published."""
        code, output = self.project.call(*RUN, self.name)
        assert code == 0, (why, output)
        for table, records in self.records.items():
            for kind in SHOWN:
                assert self.rows(kind, table) == model.expected(records, MODE), (why, kind, table)
        published = events(self.connections, f"control-{self.prefix}")
        members = Members(self.name, PipelineSpec.model_validate(self.document), self.connections)
        for member in members.known():
            check_all_published(members.open(member), published)
        check_repeated(published)

    def rows(self, kind: str, table: str) -> list[Row]:
        found = KINDS[kind].rows(self.connections, f"tests.{self.prefix}_{kind}_{table}")
        return model.sorted_rows((row["id"], row["name"], row["amount"]) for row in found)


@pytest.fixture(scope="module")
def shop(project: Project, module_topic: Callable[..., str]) -> Shop:
    name = f"shop{uuid.uuid4().hex[:6]}"
    return Shop(project, {table: module_topic(f"{name}.{table}", partitions=2) for table in TABLES}, name)


@pytest.mark.parametrize("point", failpoints.LANDING)
def test_killed_landing(point: str, shop: Shop) -> None:
    """When two of the topics stand there, or have passed."""
    shop.grow()
    shop.project.kill(point, 2, *RUN, shop.name)
    shop.finish(point)


@pytest.mark.parametrize(
    ("kind", "point"),
    # The last one is reached only by the run after that which holds a lease.
    [(kind, point) for kind in SHOWN for point in merge_points(kind)[1:] if point != "clickhouse.taken_over"],
)
def test_killed_merges(kind: str, point: str, shop: Shop) -> None:
    """When two of the kind's tables stand there, or have passed."""
    shop.grow()
    shop.project.kill(point, 2, *RUN, shop.name)
    shop.finish(f"{kind} {point}")


@pytest.mark.parametrize("point", failpoints.EVENTS)
def test_killed_among_the_events(point: str, shop: Shop) -> None:
    shop.grow()
    shop.project.kill(point, 1, *RUN, shop.name)
    shop.finish(point)


# Kinds that hand a table over in two steps, in the order in which the tables of a topic are taken over.
TWO_STEPS, BETWEEN = ("clickhouse", "bigquery"), "take-over.given"


@pytest.mark.parametrize(
    ("kind", "point", "turn"),
    [("", point, 2) for point in failpoints.TAKE_OVER if point != BETWEEN]
    # Tables of the first topic have been taken over.
    + [(kind, BETWEEN, len({*TWO_STEPS} & {*SHOWN}) + turn) for turn, kind in enumerate(TWO_STEPS, 1)],
)
def test_killed_take_over(kind: str, point: str, turn: int, shop: Shop) -> None:
    """Of the tables of some topics; the command completes it, and the pipeline of the new name goes on."""
    if kind and kind not in SHOWN:
        pytest.skip(str(unavailable(KINDS[kind])))
    shop.grow()
    shop.finish(f"before {point} {kind}")
    take_over = shop.rename()
    shop.project.kill(point, turn, *take_over)
    code, output = shop.project.call(*take_over)
    assert code == 0, (point, kind, output)
    shop.grow()
    shop.finish(f"{point} {kind}")
