"""How batches are cut into chunks: the same rows at every try, large partitions split, small ones packed."""

from __future__ import annotations

from jobs.batch import LandedBatch
from jobs.destinations.clickhouse.steps import MOST_PARTITIONS, Step, cut
from jobs.destinations.clickhouse.transitions import Span
from jobs.offsets import OffsetRange, TopicPartition
from tests.kit import batches as kit


def _batch(number: int, *sizes: int, topics: int = 1) -> LandedBatch:
    tps = [TopicPartition(f"t{n % topics}", n // topics) for n in range(len(sizes))]
    ranges = {tp: OffsetRange(100, 100 + size) for tp, size in zip(tps, sizes, strict=True)}
    return kit.landed_without_rows(kit.batch(number, ranges, topic_ids={f"t{n}": f"id{n}" for n in range(topics)}))


def _sizes(step: Step) -> list[int]:
    return [sum(span.last - span.first + 1 for span in chunk.spans.values()) for chunk in step.chunks]


def test_small_partitions_share_a_chunk_and_a_hot_one_is_split() -> None:
    step = Step((_batch(1, 5, 900, 5, 90),), chunk_rows=250)
    assert _sizes(step) == [250, 250, 250, 250]
    assert step.chunks[0].spans == {TopicPartition("t0", 0): Span(100, 104), TopicPartition("t0", 1): Span(100, 344)}
    assert all(chunk.is_part for chunk in step.chunks)


def test_a_large_batch_over_thousands_of_partitions_has_as_many_chunks_as_its_rows_need() -> None:
    assert _sizes(Step((_batch(1, *[20] * 4000),), chunk_rows=20_000)) == [20_000] * 4


def test_small_batch_over_thousands_of_partitions_is_one_chunk() -> None:
    (chunk,) = Step((_batch(1, *[1] * MOST_PARTITIONS, topics=500),), chunk_rows=250_000).chunks
    assert (chunk.name, chunk.is_part, len(chunk.spans)) == ("1-1", False, MOST_PARTITIONS)


def test_parts_are_no_larger_than_a_statement_takes() -> None:
    many = Step((_batch(1, *[1] * (MOST_PARTITIONS + 1)),), chunk_rows=250_000)
    assert _sizes(many) == [MOST_PARTITIONS, 1]
    assert _sizes(Step((_batch(1, *[1] * 501, topics=501),), chunk_rows=250_000)) == [500, 1]
    assert len({chunk.name for chunk in many.chunks}) == 2


def test_parts_of_other_rows_have_other_names() -> None:
    """An insert under a token that was used for other rows would be left out."""
    names = [{c.name for c in Step((_batch(1, 900, 90),), rows).chunks} for rows in (250, 240)]
    assert names[0].isdisjoint(names[1])


def test_the_window_bounds_the_chunks_of_a_step() -> None:
    assert [len(step.chunks) for step in cut([_batch(n, 400, 400) for n in (1, 2, 3)], 400, most_chunks=4)] == [4, 2]
