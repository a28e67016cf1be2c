"""Which table that takes the place of the one with the committed batches counts as restored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.requirements import require_same_table
from resources.errors import TableReplaced
from tests.kit.batches import committed
from tests.kit.story import COORDINATES


def table(*metadata: str) -> IcebergTable:
    return IcebergTable(kind="iceberg", table="a.b", mode="append", metadata_columns=list(metadata))


@pytest.mark.parametrize(("untraced_to", "lasting"), [(0, False), (2, True)])
def test_a_table_with_coordinates_counts_as_restored(
    untraced_to: int, lasting: bool, caplog: pytest.LogCaptureFixture
) -> None:
    state = replace(committed(5), untraced_to=untraced_to)
    require_same_table(state, "old", "new", table(*COORDINATES), "a.b", lambda: 3)
    assert "batchmerge replay p --batches A-5 --table 'a.b'" in caplog.text
    assert ("batches up to 2 cannot be replayed" in caplog.text) is lasting


def test_a_table_without_coordinates_is_kept_where_its_entry_says_so(caplog: pytest.LogCaptureFixture) -> None:
    state = replace(committed(5), untraced_to=5)
    with pytest.raises(TableReplaced, match="`on_replaced: keep`"):
        require_same_table(state, "old", "new", table(), "a.b", lambda: 3, "hold")
    require_same_table(state, "old", "new", table(), "a.b", lambda: 3, "keep")
    assert "batches up to 5 cannot be replayed" in caplog.text


@pytest.mark.parametrize(
    ("metadata", "present", "rows"), [([], "new", 3), (COORDINATES, "new", 0), (COORDINATES, None, 0)]
)
def test_a_table_that_no_replay_can_complete_stops_the_pipeline(
    metadata: list[str], present: str | None, rows: int
) -> None:
    with pytest.raises(TableReplaced, match="after batch 5 was committed"):
        require_same_table(committed(5), "old", present, table(*metadata), "a.b", lambda: rows)


@pytest.mark.parametrize("metadata", [[], COORDINATES])
def test_an_option_that_keeps_rows_is_no_remedy_for_an_empty_table(metadata: list[str]) -> None:
    with pytest.raises(TableReplaced) as refused:
        require_same_table(committed(5), "old", "new", table(*metadata), "a.b", lambda: 0, "hold")
    assert "on_replaced" not in refused.value.remedy
