"""Columns that records bring while a batch is landed: real files, and records without Kafka.

With Kafka and with what the tables make of it: `tests/destinations/test_evolution.py`.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs import failpoints
from jobs.batch import CommittedState, LandedBatch
from jobs.landing.intermediate import IntermediateTable
from jobs.landing.reads import WantedRead
from jobs.landing.task_report import TaskReport
from jobs.offsets import OffsetRange
from jobs.spec.added_columns import with_landed_columns
from resources.iceberg import IcebergCatalog
from tests.kit import specs
from tests.kit.arrow import kafka_records
from tests.kit.batches import P0, TOPIC_IDS, batch
from tests.kit.interrupting import Died, at_failpoints
from tests.kit.lake import lake_connection


class Topics:
    """Stands for the Kafka cluster."""

    def describe(self, _: object) -> tuple[dict[str, str], object]:
        return TOPIC_IDS, None


class Place:
    """A pipeline's tables in a catalog of their own."""

    def __init__(self, folder: Path, **value: object) -> None:
        self.connection = lake_connection(folder)
        self.declared = specs.spec(columns={"id": "long not null"}, value=value)
        self.committed: CommittedState | None = None

    @property
    def table(self) -> IntermediateTable:
        plain = IntermediateTable("p", self.declared, IcebergCatalog("lake", self.connection), reads=self._read)
        return replace(plain, spec=with_landed_columns(self.declared, plain.found()[0]))

    def land(self, *values: object) -> LandedBatch:
        self.values = values
        table, before = self.table, self.committed
        table.prepare()
        made = batch(
            (before.batch_number if before else 0) + 1,
            ranges={P0: OffsetRange(0, len(values))},
            previous=before.commit_id if before else None,
            commit_id=str(uuid.uuid4()),
            spec_hash=self.declared.meaning_hash,
        )
        landed = table.land(None, Topics(), made, before, {P0: len(values)}, {})  # type: ignore[arg-type]
        self.committed = table.committed()
        return landed

    def _read(self, _: object, wanted: WantedRead) -> list[TaskReport]:
        """As one of Spark's tasks would."""
        records = kafka_records(*((None, value) for value in self.values))
        return [TaskReport.from_text(row["report"]) for told in wanted.task([records]) for row in told.to_pylist()]

    def rows(self) -> list[dict[str, Any]]:
        table = IcebergCatalog("lake", self.connection).require(self.table.identifier)
        return sorted((row["value"] for row in table.scan().to_arrow().to_pylist()), key=lambda value: value["id"])


def test_batch_with_new_fields_is_landed_with_columns_for_them(tmp_path: Path) -> None:
    place = Place(tmp_path, columns={"id": "long not null"}, unknown_fields="add")
    assert place.land({"id": 1}).counts.landed == 1

    def die(point: str) -> None:
        if point == failpoints.NEW_COLUMNS:
            raise Died(point)

    second = ({"id": 2, "new": {"deep": 1.5}}, {"id": 3, "note": 7}, {"id": 4, "note": "text"})
    with at_failpoints(die), pytest.raises(Died):
        place.land(*second)
    assert place.committed == place.table.committed(), "the columns are there, and the batch is not"
    columns = {"id": "long not null", "new": "struct<deep: double>", "note": "text"}
    assert place.table.spec.source.value.columns == columns
    landed = place.land(*second)
    assert (landed.number, landed.counts.landed, landed.unknown) == (2, 3, {})
    more = place.land({"id": 5, "later": 1})
    assert more.new_columns == {"later": "long"}
    assert [batch.new_columns for batch in place.table.landed().batches][2:] == [{"later": "long"}]
    none = {"new": None, "note": None, "later": None}
    assert place.rows() == [
        {**none, "id": 1}, {**none, "id": 2, "new": {"deep": 1.5}}, {**none, "id": 3, "note": "7"},
        {**none, "id": 4, "note": "text"}, {**none, "id": 5, "later": 1},
    ]  # fmt: skip


def test_fields_that_are_left_out_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(tmp_path)
    for _ in range(2):
        assert place.land({"id": 1, "new": 1}, {"id": 2, "new": 3}).unknown == {"new": 2}
    told = [text for record in caplog.records if "no column takes" in (text := record.getMessage())]
    assert len(told) == 1
    assert "new (2)" in told[0]
    assert [batch.unknown for batch in place.table.landed().batches] == [{"new": 2}] * 2
