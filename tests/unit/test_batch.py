"""Committed state and landed batch as the flat strings of a snapshot summary."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.batch import PREFIX, Batch, CommittedState, Counts, LandedBatch, MergeCounts, new_commit_id
from jobs.landed_properties import landed_from_properties, landed_to_properties
from jobs.offsets import OffsetRange, TopicPartition
from jobs.watermark import Watermark
from tests.kit.batches import landed

SIZES = st.tuples(st.integers(0, 2**40), st.integers(0, 2**20))
RANGES = st.dictionaries(
    st.builds(TopicPartition, st.text("ab.-", min_size=1, max_size=5), st.integers(0, 20)),
    SIZES.map(lambda size: OffsetRange(size[0], size[0] + size[1])),
    max_size=8,
)


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


def test_counts_add_up_field_by_field() -> None:
    one = MergeCounts(1, 2, 3, 4, 5, 6, 7)
    assert one + one == MergeCounts(2, 4, 6, 8, 10, 12, 14)
