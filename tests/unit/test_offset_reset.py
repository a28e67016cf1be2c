"""What a reset of offsets is: which batch, what it may follow, and when it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.batch import Batch, CommittedState, LandedBatch, LandedBatches
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.destinations.leases import LeaseState
from jobs.landed_properties import landed_from_properties, landed_to_properties
from jobs.lineage import next_batches
from jobs.offsets import OffsetRange, Offsets, TopicPartition
from jobs.planning.plan import TopicState
from jobs.resets.offset_reset import Impact, ResetState, impact, plan_reset, state_after
from jobs.resets.take_over import plan_take_over
from jobs.verify.invariants import not_next, offset_jumps
from jobs.watermark import Watermark
from resources.errors import ConfigurationError, LineageBroken
from tests.kit import specs
from tests.kit.batches import P0, P1, TOPIC_IDS, batch, committed, landed, landed_without_rows
from tests.kit.story import COORDINATES

KAFKA = TopicState({P0: 5, P1: 0}, {P0: 40, P1: 40}, TOPIC_IDS)


def known(tables: Mapping[str, CommittedState | None] | None = None, **parts: object) -> ResetState:
    """Two batches are landed; one table has both, one has the first."""
    usual = ResetState(
        "p",
        committed(2),
        2,
        {"iceberg a.b": [committed(2)], "iceberg c.d": [committed(1)]},
        LandedBatches([landed(1), landed(2)]),
        KAFKA,
    )
    if tables is not None:
        usual = replace(usual, parts={name: [state] for name, state in tables.items()})
    return replace(usual, **parts)  # type: ignore[arg-type]


def reset(
    there: ResetState, targets: Offsets, dropped: tuple[TopicPartition, ...] = (), meaning: str = "hash"
) -> Batch:
    return plan_reset(there, there.base(), targets, dropped, meaning)


def numbers(batches: list[LandedBatch]) -> list[int]:
    return [batch.number for batch in batches]


def test_named_offsets_move_and_the_others_stay() -> None:
    batch = reset(known(), {P0: 33})
    assert (batch.number, batch.previous_commit_id, batch.topic_ids) == (3, "c2", TOPIC_IDS)
    assert batch.ranges == {P0: OffsetRange(33, 33), P1: OffsetRange(20, 20)}
    assert batch.continues == {"c2": {P0: 20, P1: 20}, "c1": {P0: 10, P1: 10}}
    made = replace(landed_without_rows(batch), watermark=Watermark(dict.fromkeys(batch.ranges)))
    assert landed_from_properties(landed_to_properties(made), 3) == made


def test_log_that_is_cut_off_after_a_reset_is_noticed() -> None:
    """An offset that stays has the leader's epoch in which it was committed; one that moves was just seen in Kafka."""
    base = replace(committed(2), leader_epochs={P0: 4, P1: 4})
    there = known(current=base, topics=replace(KAFKA, leader_epochs={P0: 5, P1: 5}))
    batch = reset(there, {P0: 33})
    assert batch.leader_epochs == state_after(base, batch).leader_epochs == {P0: 5, P1: 4}
    assert reset(there, {}, dropped=(P1,)).leader_epochs == {P0: 4}


def test_every_table_goes_on_from_where_it_is() -> None:
    there = known()
    made = landed_without_rows(reset(there, {P0: 33}))
    chain = [*there.landed.batches, made]
    assert numbers(next_batches("t", committed(1), chain, True)) == [2, 3]
    assert numbers(next_batches("t", committed(2), chain, True)) == [3]
    assert numbers(next_batches("t", None, chain, True)) == [1, 2, 3]
    assert not offset_jumps(chain)
    assert not not_next(chain)
    with pytest.raises(LineageBroken):
        next_batches("t", committed(2, commit_id="other"), [made], False)


def test_intermediate_table_that_lost_batches() -> None:
    """It was rolled back to 2; batches 3 and 4 are in the tables only."""
    there = known(highest=4, tables={"iceberg a.b": committed(4), "iceberg c.d": committed(1)})
    batch = reset(there, {})
    assert (batch.number, batch.previous_commit_id) == (5, "c4")
    assert {tp: r.start for tp, r in batch.ranges.items()} == {P0: 40, P1: 40}
    chain = [*there.landed.batches, landed_without_rows(batch)]
    assert numbers(next_batches("t", committed(4), chain, True)) == [5]
    assert numbers(next_batches("t", committed(1), chain, True)) == [2, 5]
    assert impact(there, batch) == [Impact("iceberg a.b", 0, 0), Impact("iceberg c.d", 40, 0)]
    assert not not_next(chain)


def test_tables_that_differ_need_a_decision() -> None:
    there = known(current=None, landed=LandedBatches(), highest=2)
    with pytest.raises(ConfigurationError, match="are at different batches"):
        there.base()
    assert there.base("iceberg c.d") == committed(1)
    batch = plan_reset(there, there.base("iceberg c.d"), {}, (), "hash")
    assert impact(there, batch) == [Impact("iceberg a.b", 0, 20), Impact("iceberg c.d", 0, 0)]


def test_table_without_offsets_is_none_to_continue_from() -> None:
    there = known(tables={"iceberg a.b": committed(2), "iceberg c.d": None})
    with pytest.raises(ConfigurationError, match=r"iceberg c\.d has no committed offsets") as caught:
        there.base("iceberg c.d")
    assert caught.value.remedy == "name one of 'iceberg a.b'"


def test_new_table_begins_with_the_reset_where_older_batches_are_gone() -> None:
    there = known(tables={"iceberg a.b": committed(2), "iceberg c.d": None}, landed=LandedBatches([landed(2)], False))
    chain = [landed(2), landed_without_rows(reset(there, {}))]
    assert numbers(next_batches("t", None, chain, False)) == [3]
    assert numbers(next_batches("t", committed(2), chain, False)) == [3]


def test_recreated_topic_is_taken_as_a_whole() -> None:
    there = known(topics=TopicState({P0: 0, P1: 0}, {P0: 3, P1: 3}, {"t": "another"}))
    with pytest.raises(ConfigurationError, match="all its partitions have to be reset"):
        reset(there, {P0: 0})
    batch = reset(there, {P0: 0, P1: 3})
    assert batch.topic_ids == {"t": "another"}
    after = state_after(committed(2), batch)
    assert after.watermark.record_times == {P0: None, P1: None}, "times of the old topic say nothing of the new one"


def test_forgotten_partitions() -> None:
    gone = TopicPartition("gone", 0)
    base = replace(committed(2), offsets={P0: 20, gone: 7}, topic_ids={**TOPIC_IDS, "gone": "x"})
    batch = plan_reset(known(current=base, tables={}), base, {}, (gone,), "hash")
    assert set(batch.ranges) == {P0}
    assert batch.topic_ids == {**TOPIC_IDS, "gone": "x"}, "should it come back, it is known as the same, or as another"


@pytest.mark.parametrize("offset", [4, 41])
def test_offset_that_kafka_does_not_have(offset: int) -> None:
    with pytest.raises(ConfigurationError, match="Kafka has only 5 to 40"):
        reset(known(), {P0: offset})


def test_partition_that_kafka_does_not_have() -> None:
    with pytest.raises(ConfigurationError, match="Kafka does not have this partition"):
        reset(known(), {TopicPartition("t", 9): 0})


def test_changed_meaning_needs_all_tables_to_have_caught_up() -> None:
    with pytest.raises(ConfigurationError, match=r"iceberg c\.d has not merged everything"):
        reset(known(), {}, meaning="new")
    batch = reset(known(tables={"iceberg a.b": committed(2)}), {}, meaning="new")
    assert batch.meaning_hash == "new"


def test_nothing_committed() -> None:
    with pytest.raises(ConfigurationError, match="nothing is committed yet"):
        known(current=None, landed=LandedBatches(), highest=0, tables={"iceberg a.b": None}).base()


def test_new_table_beside_an_intermediate_table_that_was_recreated() -> None:
    there = known(
        current=None, landed=LandedBatches(), highest=2, tables={"iceberg a.b": committed(2), "iceberg c.d": None}
    )
    chain = [landed_without_rows(reset(there, {}))]
    assert numbers(next_batches("t", None, chain, False)) == [3]
    assert numbers(next_batches("t", committed(2), chain, False)) == [3]


def test_second_reset_before_a_new_table_has_merged_anything_skips_nothing() -> None:
    tables = {"iceberg a.b": committed(2), "iceberg c.d": None}
    there = known(tables=tables, landed=LandedBatches([landed(2)], False))
    first = landed_without_rows(reset(there, {}))
    landed_since = landed(4, ranges={P0: OffsetRange(20, 30), P1: OffsetRange(20, 30)}, previous=first.batch.commit_id)
    chain = [landed(2), first, landed_since]
    state = CommittedState.after(landed_since)
    again = known(current=state, highest=4, tables={**tables, "iceberg a.b": state}, landed=LandedBatches(chain, False))
    second = reset(again, {P0: 35})
    after = [*chain, landed_without_rows(second)]
    assert numbers(next_batches("t", None, after, False)) == [3, 4, 5]
    assert impact(again, second) == [Impact("iceberg a.b", 5, 0), Impact("iceberg c.d", 5, 0)]


def test_table_that_was_rolled_back_behind_a_reset_goes_on_with_the_next_one() -> None:
    """The batches between are gone; the first reset did not know that the table stands here."""
    caught_up = known(tables={"iceberg a.b": committed(2)})
    first = landed_without_rows(reset(caught_up, {P0: 33}))
    rolled_back = {"iceberg a.b": committed(1)}
    with pytest.raises(LineageBroken, match="removed by retention"):
        next_batches("t", committed(1), [first], False)
    state = CommittedState.after(first)
    again = known(current=state, highest=3, tables=rolled_back, landed=LandedBatches([first], False))
    second = landed_without_rows(reset(again, {}))
    assert numbers(next_batches("t", committed(1), [first, second], False)) == [4]
    assert numbers(next_batches("t", committed(2), [first, second], False)) == [3, 4]


def test_what_a_new_table_skips_is_counted() -> None:
    """What was landed with another meaning cannot begin a table: it begins with the reset, and everybody can see it."""
    there = known(tables={"iceberg a.b": committed(2), "iceberg c.d": None})
    batch = reset(there, {}, meaning="new")
    chain = [*there.landed.batches, landed_without_rows(batch)]
    assert numbers(next_batches("t", None, chain, True)) == [3]
    assert impact(there, batch) == [Impact("iceberg a.b", 0, 0), Impact("iceberg c.d", 40, 0)]


def test_what_truncations_have_taken_away_stays_away_until_changes_mean_something_else() -> None:
    base, batch = replace(committed(2), watermark=Watermark().truncated(7)), reset(known(), {})
    assert state_after(base, batch).watermark.truncated_below == 7
    assert state_after(base, replace(batch, meaning_hash="new")).watermark.truncated_below is None


def test_what_truncations_have_taken_away_is_not_brought_back_by_a_recreated_topic() -> None:
    """Replays of older batches leave out what the newest one says."""
    there = known(topics=TopicState({P0: 0, P1: 0}, {P0: 3, P1: 3}, {"t": "another"}))
    base = replace(committed(2), watermark=Watermark().truncated(7))
    assert state_after(base, reset(there, {P0: 0, P1: 3})).watermark.truncated_below == 7


@pytest.mark.parametrize(("meaning", "gets"), [("hash", [2, 3]), ("new", [3])])
def test_table_that_records_have_named_begins_with_its_own_first_batch(meaning: str, gets: list[int]) -> None:
    """Retention has removed older batches, which do not concern it; a reset leaves none of its own out."""
    tables = {"iceberg a.b": committed(2), "iceberg c.d": None}
    there = known(tables=tables, landed=LandedBatches([landed(2)], False), begins={"iceberg c.d": 2})
    batch = reset(there, {}, meaning=meaning)
    own = LandedBatches([landed(2), landed_without_rows(batch)], complete=False).since(2)
    assert numbers(next_batches("t", None, own.batches, own.complete)) == gets
    assert impact(there, batch)[1] == Impact("iceberg c.d", 0 if gets[0] == 2 else 20, 0)


def test_table_that_records_have_named_begins_with_its_own_batch_beside_a_new_table_that_cannot() -> None:
    tables = {"iceberg a.b": committed(2), "iceberg c.d": None, "iceberg e.f": None}
    there = known(tables=tables, landed=LandedBatches([landed(2)], False), begins={"iceberg c.d": 2})
    batch = reset(there, {})
    own = LandedBatches([landed(2), landed_without_rows(batch)], complete=False).since(2)
    assert numbers(next_batches("t", None, own.batches, own.complete)) == [2, 3]
    assert numbers(next_batches("t", None, own.batches, False)) == [3]
    assert [found.skipped for found in impact(there, batch)] == [0, 0, 20]


@pytest.mark.parametrize(("merged", "untraced_to"), [(None, 4), (replace(committed(3), untraced_to=3), 3)])
def test_reset_right_after_a_take_over_keeps_what_the_tables_cannot_trace(
    merged: CommittedState | None, untraced_to: int
) -> None:
    """A table that has not merged the take-over begins with the reset that accepts another `changes`."""
    table = IcebergTable.model_validate(specs.table(name="a.b", metadata_columns=list(COORDINATES)))
    taken = landed_without_rows(batch(3, continues={"": {}}, untraced=[table.title]))
    state = CommittedState.after(taken)
    there = known(current=state, highest=3, tables={table.title: merged}, landed=LandedBatches([taken], False))
    again = landed_without_rows(reset(there, {}, meaning="new"))
    begins = next_batches("t", merged, [taken, again], False)
    assert (numbers(begins), CommittedState.untraced_after(merged, begins, table)) == ([4], untraced_to)


def test_take_over_of_a_half_done_batch_is_refused_before_any_table_is_handed_over() -> None:
    """The other pipeline could not complete it, once it has lost one of its tables."""

    def table(name: str, begun: int) -> SimpleNamespace:
        now = datetime(2026, 5, 1, tzinfo=UTC)
        lease = LeaseState(1, "h:1", "", "run", 1, begun, committed(5), now, ())
        return SimpleNamespace(name=f"clickhouse {name}", settle=lambda: None, leases=lambda: [lease], states=list)

    old = SimpleNamespace(name="old", destinations=lambda: [table("a.whole", 0), table("a.half", 6)])
    new: Any = SimpleNamespace(name="new", named=lambda _: old, take_columns=lambda _: None)
    with pytest.raises(ConfigurationError, match="batch 6 of pipeline old is half done") as caught:
        plan_take_over(new, "old")
    assert caught.value.where == "clickhouse a.half on h:1"
    assert "run pipeline old, with this table in its file, once more" in (caught.value.remedy or "")
