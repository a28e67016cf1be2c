"""A continuous run that commits all tables of a batch at once (`interval` with `commit: together`), on a daemon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest

from jobs.connections_file import load_connections
from jobs.failpoints import TOGETHER, VARIABLE
from jobs.pipeline import Pipeline
from orchestration import pauses
from orchestration.names import continuous_op, table_key
from resources.connections import Connections
from resources.kafka_groups import group_offsets
from tests.kit.continuous import continuous_run
from tests.kit.engine import catalog
from tests.kit.events import check_all_published, check_groups, events
from tests.kit.flow import Flow, rows
from tests.kit.model import Row, expected
from tests.kit.records import Record, bootstrap, produce, random_changes


@dataclass
class Shop:
    """A pipeline with two tables of that lake, which commits every second."""

    flow: Flow
    control: str
    connections: Connections
    sent: list[Record] = field(default_factory=list)

    @property
    def pipeline(self) -> Pipeline:
        return self.flow.pipeline(self.connections)

    @property
    def step(self) -> str:
        """Of all tables."""
        return continuous_op(self.flow.name, table_key(self.flow.spec.tables[0]))

    def send(self) -> None:
        more = random_changes(seed=len(self.sent), count=40, keys=20, partitions=1)
        produce(bootstrap(self.connections), self.flow.topic, more)
        self.sent.extend(more)

    def is_there(self) -> bool:
        """All records in all tables, and all commit events: of those the group's offsets are the last."""
        landed, wanted = self.pipeline.intermediate.committed(), self.sent
        rows_there = all(_rows(self.connections, self.flow.table(m)) == expected(wanted, m) for m in self.flow.modes)
        return (
            rows_there
            and landed is not None
            and group_offsets(self.pipeline.kafka, self.pipeline.group, landed.offsets) == dict(landed.offsets)
        )

    def check(self) -> None:
        """Both tables have had the same commits, one after the other, and each was published once."""
        append, upsert = (_commits(self.connections, self.flow.table(mode)) for mode in self.flow.modes)
        assert append == upsert
        check_all_published(self.pipeline, events(self.connections, self.control))
        check_groups(self.pipeline)


@pytest.fixture
def shop(rest_file: Path, topic: Callable[..., str]) -> Shop:
    control = topic("control")
    parts: dict[str, object] = {"interval": "1s", "commit": "together", "control": {"topic": control}}
    return Shop(Flow(topic(), ["append", "upsert_delete"], overrides=parts), control, load_connections(rest_file))


def test_tables_get_every_batch_at_once_and_each_has_its_materialization(
    shop: Shop, rest_file: Path, tmp_path: Path
) -> None:
    with continuous_run(tmp_path, rest_file, shop.flow.name, shop.flow.spec_document) as one:
        for _ in range(3):
            shop.send()
            one.until(shop.is_there)
        (run,) = one.runs()
        pauses.pause(one.instance, shop.flow.name, shop.flow.spec, None, "anna")
        one.until(lambda: shop.step in one.ends(run.run_id, dg.DagsterEventType.STEP_SUCCESS))
        newest = [one.materialization(table_key(table)) for table in shop.flow.spec.tables]
    landed = shop.pipeline.intermediate.committed()
    assert landed
    assert [m and m.metadata["last batch"].value for m in newest] == [landed.batch_number] * 2
    shop.check()


# `make crash` kills plain runs at these points; `make thorough` this one.
@pytest.mark.slow
@pytest.mark.parametrize("point", TOGETHER)
def test_killed_common_commit(point: str, shop: Shop, rest_file: Path, tmp_path: Path) -> None:
    """Every process of the step dies when it comes there for the second time; the next one goes on."""
    failpoint = {VARIABLE: f"{point}:2"}
    with continuous_run(tmp_path, rest_file, shop.flow.name, shop.flow.spec_document, **failpoint) as one:
        first = one.started()
        for _ in range(2):
            shop.send()
            one.until(shop.is_there)
        assert one.ends(first.run_id, dg.DagsterEventType.STEP_FAILURE) == {shop.step}
    shop.check()


def _commits(connections: Connections, table: str) -> list[str]:
    """Without the snapshots of maintenance, for which the daemon's schedule may find the time."""
    snapshots = catalog(connections).require(table).metadata.snapshots
    found = [one.summary["batchmerge.commit-id"] for one in snapshots if one.summary]
    return [commit_id for commit_id in found if commit_id is not None]


def _rows(connections: Connections, table: str) -> list[Row]:
    found = catalog(connections).load(table)
    return rows(connections, table) if found and found.current_snapshot() else []
