"""Rows of a real SQLite lake as they were before a batch: at which snapshot, and under which names. No Spark here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from jobs.destinations.iceberg.read import IcebergReader
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.row_values import RowValues
from jobs.iceberg.schema import iceberg_schema
from resources.iceberg import IcebergCatalog
from tests.kit.batches import committed

NAME = "n.t"


class Asked:
    """What Spark is asked."""

    text = ""

    def sql(self, text: str) -> Asked:
        self.text = " ".join(text.replace("`", "").split())
        return self

    def join(self, *_: object) -> Asked:
        return self


def merged(lake: IcebergCatalog, batch: int) -> int:
    """The snapshot of a merge up to this batch."""
    table = lake.require(NAME)
    table.append(table.scan().to_arrow(), committed(batch).to_properties())
    snapshot = table.current_snapshot()
    assert snapshot
    return snapshot.snapshot_id


@pytest.mark.parametrize(
    ("before", "least", "found"), [([3], 0, 2), ([5], 0, 4), ([3, 5], 0, 2), ([3, 5], 4, 4), ([1, 2], 0, None)]
)
def test_old_rows_are_those_of_before_the_first_batch_that_can_be(
    before: list[int], least: int, found: int | None, lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column was added after the first merge, and another one renamed."""
    monkeypatch.setattr("jobs.destinations.iceberg.read.F", SimpleNamespace(broadcast=lambda given: given))
    table = lake.create(NAME, iceberg_schema(pa.schema([("ID", pa.int64()), ("text", pa.string())])))
    snapshots = {2: merged(lake, 2)}
    with table.update_schema() as update:
        update.rename_column("text", "body").add_column("note", StringType())
    snapshots[4] = merged(lake, 4)
    with lake.require(NAME).update_schema() as update:
        update.add_column("more", StringType())

    spark, keys = Asked(), SimpleNamespace(columns=["id"])
    entry = IcebergTable.model_validate({"kind": "iceberg", "table": NAME, "mode": "upsert"})
    reader = IcebergReader("p", RowValues([]), lake, entry, spark)  # type: ignore[arg-type]
    old_rows: Any = reader.rows_of(spark, keys, ["body", "note", "more"], before, least)  # type: ignore[arg-type]
    assert (old_rows and old_rows[1]) == found
    if found:
        body, note = ("text", "NULL") if found == 2 else ("body", "note")
        selected = f"SELECT ID AS id, {body} AS body, {note} AS note, NULL AS more"
        assert spark.text == f"{selected} FROM {lake.name}.n.t VERSION AS OF {snapshots[found]}"
