"""VTTS and `caught_up_through`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.offsets import OffsetRange, TopicPartition
from jobs.watermark import Watermark
from tests.kit.batches import P0, P1

READ = {P0: OffsetRange(0, 10), P1: OffsetRange(0, 10)}
MORE = {P0: 100, P1: 100}


def test_vtts_is_absent_until_every_partition_has_been_seen() -> None:
    first = Watermark().advance(READ, {P0: 500}, MORE, asked_at=9000)
    assert first.vtts is None
    assert first.caught_up_through is None
    second = first.advance(READ, {P1: 300}, MORE, asked_at=9100)
    assert second.vtts == 300


def test_vtts_is_the_minimum_of_the_maxima_and_late_records_do_not_take_it_back() -> None:
    seen = Watermark().advance(READ, {P0: 500, P1: 400}, MORE, 9000)
    assert seen.vtts == 400
    later = seen.advance(READ, {P0: 100, P1: 450}, MORE, 9000)
    assert later.vtts == 450
    assert later.record_times == {P0: 500, P1: 450}


def test_new_partition_hides_vtts_until_it_is_seen() -> None:
    grown = TopicPartition("t", 2)
    mark = Watermark().advance(READ, {P0: 5, P1: 5}, MORE, 9000)
    mark = mark.advance({**READ, grown: OffsetRange(0, 1)}, {}, MORE, 9000)
    assert mark.vtts is None
    assert mark.advance({grown: OffsetRange(1, 2)}, {grown: 7}, MORE, 9000).vtts == 5


def test_partition_read_to_its_end_counts_as_of_the_question() -> None:
    idle = Watermark().advance(READ, {P0: 500, P1: 400}, {P0: 10, P1: 10}, asked_at=9000)
    assert (idle.vtts, idle.caught_up_through) == (400, 9000)


def test_partition_that_never_had_a_record_does_not_look_stale() -> None:
    empty = {P0: OffsetRange(0, 10), P1: OffsetRange(0, 0)}
    mark = Watermark().advance(empty, {P0: 500}, {P0: 100, P1: 0}, asked_at=9000)
    assert mark.vtts is None
    assert mark.caught_up_through == 500


def test_caught_up_through_never_goes_back() -> None:
    ahead = Watermark().advance(READ, {P0: 500, P1: 400}, {P0: 10, P1: 10}, asked_at=9000)
    behind = ahead.advance(READ, {P0: 501, P1: 401}, MORE, asked_at=9500)
    assert behind.caught_up_through == 9000


def test_partition_without_a_credible_time_stays_where_it_was() -> None:
    """As of a producer that counts in microseconds."""
    mark = Watermark().advance(READ, {P1: 400}, MORE, asked_at=9000)
    assert (mark.record_times, mark.caught_up_through) == ({P0: None, P1: 400}, None)
    mark = mark.advance(READ, {P0: 300}, MORE, asked_at=9500)
    assert (mark.vtts, mark.caught_up_through) == (300, 300)
    mark = mark.advance(READ, {}, {P0: 10, P1: 10}, asked_at=9600)
    assert (mark.vtts, mark.caught_up_through) == (300, 9600), "both are read to their ends"
    absurd = 253_402_300_799_999
    known = Watermark({P0: absurd, P1: absurd}, absurd).advance(READ, {}, MORE, asked_at=9700)
    assert (known.vtts, known.caught_up_through) == (9700, 9700), "of a state that has it already"


def test_clock_that_is_ahead_counts_as_of_the_question() -> None:
    mark = Watermark().advance(READ, {P0: 9500, P1: 9600}, MORE, asked_at=9000)
    assert (mark.vtts, mark.caught_up_through) == (9000, 9000)


TIMES = st.one_of(st.none(), st.integers(-1, 2**53))


@given(st.dictionaries(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 9)), TIMES), TIMES)
def test_properties_round_trip(times: dict[TopicPartition, int | None], caught_up: int | None) -> None:
    mark = Watermark(times, caught_up)
    assert Watermark.from_properties(mark.to_properties("x."), "x.", dict.fromkeys(times, 0)) == mark


def test_truncations_only_ever_reach_further() -> None:
    mark = Watermark().truncated(None).truncated(-7).truncated(5).truncated(3)
    assert mark.advance(READ, {P0: 500}, MORE, 9000).truncated(None).truncated_below == 5
    assert Watermark.from_properties(mark.to_properties("p."), "p.", {}).truncated_below == 5
    assert Watermark.from_properties(Watermark().to_properties("p."), "p.", {}).truncated_below is None
