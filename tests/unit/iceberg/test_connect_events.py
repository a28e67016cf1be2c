"""Files that an Iceberg sink has announced, and of which nothing says that they are in a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from jobs.destinations.iceberg import connect_offsets
from jobs.destinations.iceberg.connect_offsets import check_all_in_tables
from resources.errors import SourceError
from resources.topic_partition import TopicPartition
from tests.kit.connect_events import event

# The sink's first commit was to all tables; its second one to `db.kept` alone.
COMPLETE, KEPT = {TopicPartition("control", 0): 2}, {0: 4}
LOST = pytest.raises(SourceError, match=r"1 of the sink's events .* offset 4 of control-0 for db\.kept.* Fix: start")


def test_a_commit_to_all_tables_counts_where_no_snapshot_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event("g", one, ["f"]) for one in ("db.dropped", "db.expired", "db.kept", "db.kept")]

    def offsets(_: object, group: str, asked: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        assert group == "g-coord"
        return {tp: COMPLETE[tp] for tp in asked}

    def read(*_: object) -> pa.Table:
        return pa.table({"value": events, "partition": [0] * len(events), "offset": list(range(len(events)))})

    def committed(_: object, name: str, *more: str) -> dict[int, int]:
        assert more == ("main", "control", "g")
        return KEPT if name == "db.kept" else {}

    for name, stand_in in (("group_offsets", offsets), ("read_to_end", read), ("snapshot_offsets", committed)):
        monkeypatch.setattr(connect_offsets, name, stand_in)

    def check() -> None:
        nothing: Any = None
        check_all_in_tables(nothing, nothing, "control", "g", lambda _: "main")

    check()
    events.append(event("g", "db.kept", ["f"]))
    with LOST:
        check()
