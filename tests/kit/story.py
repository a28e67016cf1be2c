"""Changes that are landed once, and tables of every kind and mode that get them, each under its own name."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs import protocol
from jobs.batch import LandedBatch
from jobs.destinations.base import Destination
from jobs.lineage import next_batches, next_stretch
from jobs.merged import MergedBatches
from jobs.replay.landed import replay_batches
from jobs.verify.reconciliation import Verdict, reconcile
from jobs.verify.stale_keys import stale_keys
from resources.connections import Connections
from tests.kit.engine import Engine
from tests.kit.flow import Flow
from tests.kit.kind import KindUnderTest
from tests.kit.kinds import KINDS, runnable
from tests.kit.model import Row
from tests.kit.records import COLUMNS, Record, bootstrap, produce

# Its emulator takes three times as long as any other kind.
SLOWEST = "bigquery"
COORDINATES = ["topic", "partition", "offset"]


@dataclass(frozen=True)
class Target:
    """A kind and one of the modes that it has.

    Attributes:
        way: in which of the kind's `ways` a merge is made.
    """

    kind: KindUnderTest
    mode: str
    way: int = 0

    def __str__(self) -> str:
        return "-".join([self.kind.name, self.mode, *map(str, self.options.values())])

    @property
    def options(self) -> Mapping[str, object]:
        return self.kind.ways[self.way]


def targets(*modes: str, can: str = "", cannot: str = "") -> list[Target]:
    """Every kind × every mode that it has; of these modes only, of kinds with one capability and without another."""
    return [
        Target(kind, mode)
        for kind in KINDS.values()
        if not can or getattr(kind.capabilities, can)
        if not cannot or not getattr(kind.capabilities, cannot)
        for mode in kind.modes
        if not modes or mode in modes
    ]


def on_targets(
    *modes: str, can: str = "", cannot: str = "", always: str = "", shared: bool = False, ways: bool = False
) -> pytest.MarkDecorator:
    """Runs a test on these `targets`, with `ways` in all their ways.

    Args:
        always: `make test` runs it only on those that are named here, by mode or whole, if any are; and never in
            another way than the usual one.
        shared: `make test` leaves out the kind that takes longest: what the test shows is decided by code that all
            kinds share, or by statements that `tests/integration/test_bigquery_statements.py` runs by themselves.
    """
    found, named = targets(*modes, can=can, cannot=cannot), always.split()
    usual = [
        t for t in found if not named or t.mode in named or str(t) in named if not (shared and t.kind.name == SLOWEST)
    ]
    wanted = [Target(t.kind, t.mode, way) for t in found for way in range(len(t.kind.ways) if ways else 1)]
    marked = [t if t in usual else pytest.param(t, marks=pytest.mark.slow) for t in wanted]
    return pytest.mark.parametrize("target", marked, ids=list(map(str, wanted)))


def asked_for(request: pytest.FixtureRequest, fixture: str) -> list[Target]:
    """The targets on which the chosen tests look at what this fixture of their module makes."""
    given = {
        item.callspec.params.get("target")
        for item in request.session.items
        if item.path == request.path and fixture in getattr(item, "fixturenames", ()) and hasattr(item, "callspec")
    }
    return [target for target in targets() if target in given and runnable(target.kind)]


@dataclass
class Story:
    """A pipeline that has no control topic, and what was produced for it.

    Attributes:
        records: in the order of a topic-partition.
    """

    engine: Engine
    records: list[Record] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        topic: str,
        connections: Connections,
        spark: SparkSession,
        columns: Mapping[str, str] | None = None,
        source: Mapping[str, object] | None = None,
        **parts: object,
    ) -> Story:
        """`columns` of the value, parts of `source` and `parts` of the pipeline file replace the usual ones."""
        flow = Flow(topic, ["upsert"], overrides={"control": {"enabled": False}, **parts})
        story = cls(Engine(flow, connections, spark))
        return story.reading(columns or COLUMNS, **(source or {}))

    def produce(self, *records: Record, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        produce(bootstrap(self.engine.connections), self.engine.flow.topic, records, headers=headers)
        self.records += records

    def land(self, size: int = 100_000) -> list[LandedBatch]:
        """Lands all records that were produced, in batches of this size."""
        return self.edited(batch={"max_records": size}).engine.land()

    def land_each(self, chapters: Iterable[Sequence[Record]]) -> Story:
        """Produces the chapters one after the other, and lands each as a batch."""
        for chapter in chapters:
            self.produce(*chapter)
            self.land()
        return self

    def edited(self, **parts: object) -> Story:
        """This pipeline with parts of its file replaced."""
        return Story(self.engine.edited(**parts), self.records)

    def reading(self, columns: Mapping[str, str], **source: object) -> Story:
        """This pipeline with these columns of the value, and other parts of `source`."""
        return Story(self.engine.with_value(columns=columns).with_source(**source), self.records)

    def table(self, target: Target, **options: object) -> TableUnderTest:
        """Another table for what is landed."""
        name = f"tests.{target.kind.name}_{target.mode}_{uuid.uuid4().hex[:8]}"
        return TableUnderTest(self, target, name, options)


@dataclass(frozen=True)
class TableUnderTest:
    """The only table of a story's pipeline; each call opens it as a run of its own does."""

    story: Story
    target: Target
    name: str
    options: dict[str, object]

    @property
    def engine(self) -> Engine:
        return self.story.engine.edited(tables=[self.entry])

    @property
    def entry(self) -> dict[str, object]:
        """The table's entry in the pipeline file."""
        of = {"kind": self.target.kind.name, "table": self.name, "mode": self.target.mode}
        return {
            **of,
            "metadata_columns": COORDINATES,
            **self.target.kind.options,
            **self.target.options,
            **self.options,
        }

    def under(self, story: Story, **options: object) -> TableUnderTest:
        """This table in another version of the pipeline file."""
        return TableUnderTest(story, self.target, self.name, {**self.options, **options})

    def as_another_pipeline(self) -> TableUnderTest:
        """The same table and topic in a pipeline file of another name."""
        old = self.story.engine
        other = replace(old, flow=Flow(old.flow.topic, ["upsert"], overrides=old.flow.overrides))
        return replace(self, story=Story(other, self.story.records))

    @property
    def destination(self) -> Destination:
        return self.engine.pipeline.destinations()[0]

    def merge(self) -> MergedBatches | None:
        pipeline = self.engine.pipeline
        return protocol.merge(pipeline, pipeline.destinations()[0])

    def merge_some(self, count: int) -> None:
        """Merges the next `count` landed batches together, as a run does that came before the others were landed."""
        pipeline = self.engine.pipeline
        (destination,) = pipeline.destinations()
        destination.prepare()
        committed = destination.committed()
        landed = pipeline.intermediate.landed()
        batches = next_stretch(next_batches(destination.name, committed, landed.batches, landed.complete))[:count]
        if batches:
            assert destination.merge(pipeline.merge_context(destination), committed, batches)

    def replay(self, first: int, last: int) -> MergedBatches | None:
        pipeline = self.engine.pipeline
        return replay_batches(pipeline, pipeline.destinations()[0], first, last)

    def verify(self) -> Verdict:
        """Compares all rows."""
        pipeline = self.engine.pipeline
        return reconcile(pipeline, pipeline.destinations()[0], 0)

    def stale(self) -> int:
        pipeline = self.engine.pipeline
        (destination,) = pipeline.destinations()
        landed, session = pipeline.intermediate.landed().batches, pipeline.merge_context(destination).session
        return stale_keys(pipeline, destination, destination.committed(), landed, session)

    def select(self, *columns: str) -> list[dict[str, Any]]:
        return self.target.kind.rows(self.engine.connections, self.name, columns)

    def rows(self) -> list[Row]:
        found = self.select("id", "name", "amount")
        return sorted((row["id"], row["name"], row["amount"]) for row in found)

    def remove(self, below: int) -> None:
        self.target.kind.remove(self.engine.connections, self.name, below)

    def plant(self, row: Row) -> None:
        self.target.kind.plant(self.engine.connections, self.name, row)

    def drop(self) -> None:
        self.target.kind.drop(self.engine.connections, self.name)
