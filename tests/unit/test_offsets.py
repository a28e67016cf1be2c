"""The offsets codec and the arithmetic of ranges."""

from __future__ import annotations

import base64
import json
import threading
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import offsets
from jobs.offsets import OffsetRange, TopicPartition

TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=20)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 60))
A0, A2, B1 = TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)


@given(st.dictionaries(PARTITIONS, st.integers(-1, 2**63 - 1), max_size=40))
def test_decode_is_the_inverse_of_encode(values: dict[TopicPartition, int]) -> None:
    assert offsets.decode(offsets.encode(values)) == values


def test_compact_form_is_one_array_a_topic_with_null_for_holes() -> None:
    assert offsets.encode({A2: 7, A0: 120, B1: 1}) == '{"a":[120,null,7],"b":[null,1]}'


def test_the_same_topic_partitions_in_all_values() -> None:
    text = '{"a":[120,null,7]}'
    assert all(one is other for one, other in zip(offsets.decode(text), offsets.decode(text), strict=True))


def test_states_of_earlier_versions_were_compressed_otherwise() -> None:
    values = {TopicPartition("a", p): p * 7919 % 5000 for p in range(5000)}
    text = json.dumps(offsets.to_arrays(values)).encode()
    assert offsets.decode("zlib:" + base64.b64encode(zlib.compress(text, 9)).decode()) == values
    assert len(offsets.encode(values)) < 25_000


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (5, 4), (-2, -1)])
def test_range_that_is_none_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not an offset range"):
        OffsetRange(start, end)


def test_ranges_add_up() -> None:
    ranges = {A0: OffsetRange(3, 10), B1: OffsetRange(5, 5)}
    assert offsets.total(ranges) == 7
    assert offsets.starts(ranges) == {A0: 3, B1: 5}
    assert offsets.ends(ranges) == {A0: 10, B1: 5}


def test_minimum_leaves_out_what_one_of_them_lacks() -> None:
    assert offsets.minimum([{A0: 5, B1: 2}, {A0: 3, A2: 1}]) == {A0: 3}
    assert offsets.minimum([]) == {}


def test_later_values_are_decoded_once_and_ahead() -> None:
    decoded = list[int]()

    def later(number: int) -> offsets.Later[TopicPartition, int]:
        def decode() -> dict[TopicPartition, int]:
            decoded.append(threading.get_ident())
            return {A0: number, B1: 2}

        return offsets.Later(decode)

    one = later(1)
    assert decoded == [], "not before somebody looks"
    assert (dict(one.items()), [*one.values()], one == {A0: 1, B1: 2}) == ({A0: 1, B1: 2}, [1, 2], True)
    assert len(decoded) == 1
    found = [*offsets.read_ahead(map(later, range(40)))]
    assert found == [{A0: number, B1: 2} for number in range(40)]
    assert threading.get_ident() not in decoded[1:], "by threads"
