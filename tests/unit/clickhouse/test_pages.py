"""Many topic-partitions in a few rows of the state."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.destinations.clickhouse.pages import by_page, from_text, page_of, to_text
from jobs.destinations.clickhouse.state import PartitionRow
from jobs.destinations.clickhouse.transitions import Phase, Span
from jobs.offsets import TopicPartition

TPS = st.builds(TopicPartition, st.sampled_from(["a", "b.c_d-e"]), st.integers(0, 3000))
ROWS = st.builds(
    PartitionRow,
    st.builds(Span, st.integers(0, 9), st.integers(10, 10**12)),
    st.sampled_from(Phase),
    st.integers(1, 3),
    st.sampled_from(["c1", "c2"]),
    st.sampled_from(["", "id"]),
)


@given(st.dictionaries(TPS, ROWS))
def test_text_of_a_page_comes_back(page: dict[TopicPartition, PartitionRow]) -> None:
    assert from_text(to_text(page)) == page


def test_page_of_a_topic_partition_never_changes() -> None:
    """Else what is written there would be lost."""
    assert [page_of(TopicPartition("orders", n)) for n in (0, 999, 1000)] == ["*/18", "*/18", "*/4"]


def test_pages_of_many_topics_and_partitions_are_few_and_small() -> None:
    """A parameter of a statement may have 128 KB."""
    for topics, partitions in ((1, 5000), (5000, 1), (500, 100)):
        tps = [TopicPartition(f"a-topic-with-a-name-of-fifty-characters-{t:010}", p) for t in range(topics)
               for p in range(partitions)]  # fmt: skip
        found = by_page(tps)
        assert len(found) <= 64
        assert sorted(tp for page in found.values() for tp in page) == sorted(tps)
        rows = {tp: PartitionRow(Span(hash(tp) % 10**9, 10**12), Phase.AFTER, 7, "c" * 36, "i" * 22) for tp in tps}
        assert max(len(to_text({tp: rows[tp] for tp in page})) for page in found.values()) < 40_000
