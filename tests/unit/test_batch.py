"""Committed state and landed batch as the flat strings of a snapshot summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.batch import PREFIX, Batch, CommittedState, Counts, LandedBatch, MergeCounts, new_commit_id
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.landed_properties import landed_from_properties, landed_to_properties
from jobs.offsets import OffsetRange, TopicPartition
from jobs.replay.coordinates import check_batches
from jobs.watermark import Watermark
from resources.errors import ConfigurationError
from tests.kit import specs
from tests.kit.batches import landed
from tests.kit.story import COORDINATES

SIZES = st.tuples(st.integers(0, 2**40), st.integers(0, 2**20))
RANGES = st.dictionaries(
    st.builds(TopicPartition, st.text("ab.-", min_size=1, max_size=5), st.integers(0, 20)),
    SIZES.map(lambda size: OffsetRange(size[0], size[0] + size[1])),
    max_size=8,
)


def destination(table: IcebergTable) -> Any:
    return SimpleNamespace(table=table, name=table.title)


@given(RANGES, st.one_of(st.none(), st.uuids().map(str)), st.one_of(st.none(), st.integers(0, 2**50)))
def test_landed_batch_round_trips(
    ranges: dict[TopicPartition, OffsetRange], previous: str | None, caught_up: int | None
) -> None:
    made = Batch("p_1", 12, new_commit_id(), previous, ranges, {"a": "id", "b.-": 'q"uote'}, 123, "hash",
                 leader_epochs=dict.fromkeys(ranges, 7), untraced=("iceberg a.b",))  # fmt: skip
    times = {tp: r.start if len(r) else None for tp, r in ranges.items()}
    whole = LandedBatch(made, Counts(5, 3, 1, 1, 7), Watermark(times, caught_up), snapshot_id=99)
    properties = landed_to_properties(whole)
    assert all(k.startswith(PREFIX) for k in properties)
    assert {type(v) for v in properties.values()} == {str}
    assert landed_from_properties(properties, 99) == whole
    state = CommittedState.after(whole)
    for one in (state, replace(state, order="o")):
        assert CommittedState.from_properties(one.to_properties()) == one
    # A landed batch's summary says what a table says that has it.
    assert CommittedState.from_properties(properties) == state


def test_state_after_a_batch_stands_at_its_ends() -> None:
    state = CommittedState.after(landed(3))
    assert (state.batch_number, state.commit_id, set(state.offsets.values())) == (3, "c3", {30})


@pytest.mark.parametrize(
    ("known", "meaning", "order", "otherwise"),
    [
        ("o", "other", "another", True),
        ("o", "other", "o", False),
        ("o", "hash", "o", False),
        # A state of before orders were kept in it.
        ("", "hash", "o", False),
        ("", "other", "o", True),
    ],
)
def test_deletes_that_are_kept_go_by_key_and_order_alone(known: str, meaning: str, order: str, otherwise: bool) -> None:
    assert CommittedState.after(landed(1), known).orders_otherwise(meaning, order) is otherwise


@pytest.mark.parametrize("metadata", [[], COORDINATES])
@pytest.mark.parametrize("mode", ["upsert", "upsert_delete"])
def test_batches_that_were_merged_by_key_cannot_be_replayed_in_another_mode(mode: str, metadata: Sequence[str]) -> None:
    """A key's row has the coordinates of one of its records: a replay would add rows of the others beside it."""
    keyed = IcebergTable.model_validate(specs.table(mode=mode, metadata_columns=list(metadata)))
    appended = keyed.model_copy(update={"mode": "append", "metadata_columns": list(COORDINATES)})
    state = CommittedState.after(landed(2), "", CommittedState.untraced_after(None, [landed(1), landed(2)], keyed))
    assert (state.untraced(keyed), state.untraced(appended)) == (0, 2)
    later = CommittedState.after(landed(3), "", CommittedState.untraced_after(state, [landed(3)], appended))
    assert (later.untraced(keyed), later.untraced(appended)) == (0, 2)
    check_batches(destination(keyed), later, 1)
    check_batches(destination(appended), later, 3)
    with pytest.raises(ConfigurationError, match=r"batches up to 2 were written .* or one for each key") as refused:
        check_batches(destination(appended), later, 2)
    assert "begin at batch 3" in (refused.value.remedy or "")


def test_counts_add_up_field_by_field() -> None:
    one = MergeCounts(1, 2, 3, 4, 5, 6, 7)
    assert one + one == MergeCounts(2, 4, 6, 8, 10, 12, 14)
