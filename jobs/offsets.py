"""Offsets of topic-partitions: the values of plans, batches and committed states.

The compact form is for snapshot summaries and table properties: one JSON array per topic, indexed by partition, with
null for partitions without a value; compressed if it is long. Offsets of 5,000 partitions have about 35 KB.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, ClassVar, TypeVar

from jobs.compact_text import compact_text, plain_text
from resources.topic_partition import TopicPartition as TopicPartition  # noqa: PLC0414  re-exported

K = TypeVar("K")
V = TypeVar("V")


Offsets = Mapping[TopicPartition, int]

_READABLE = 4000
_STAY_DECODED = 100
_AHEAD = 16


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[start, end)`` of one topic-partition."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not an offset range: [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start


Ranges = Mapping[TopicPartition, OffsetRange]


class Later(Mapping[K, V]):
    """Values by topic-partition, or by topic, decoded on first access, which for most landed batches never happens.

    Only the last ones that were accessed are cached: thousands of batches of thousands of partitions would fill the
    memory.
    """

    _decoded: ClassVar[deque[Later[Any, Any]]] = deque()
    _lock: ClassVar[Lock] = Lock()

    def __init__(self, decode: Callable[[], Mapping[K, V]]) -> None:
        self._decode = decode
        self._known: Mapping[K, V] | None = None

    @property
    def _values(self) -> Mapping[K, V]:
        known = self._known
        if known is None:
            known = self._known = self._decode()
            with self._lock:
                self._decoded.append(self)
                if len(self._decoded) > _STAY_DECODED:
                    self._decoded.popleft()._known = None
        return known

    def __getitem__(self, key: K) -> V:
        return self._values[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    # Those of a mapping would look each key up here.
    def keys(self) -> KeysView[K]:
        return self._values.keys()

    def items(self) -> ItemsView[K, V]:
        return self._values.items()

    def values(self) -> ValuesView[V]:
        return self._values.values()

    def __reduce__(self) -> tuple[type[dict[K, V]], tuple[dict[K, V]]]:
        """Pickles the decoded values."""
        return dict, (dict(self._values),)


def read_ahead(found: Iterable[Mapping[K, V]]) -> Iterator[dict[K, V]]:
    """The values in this order, some of them decoded ahead in threads, since each may be in a file of its own."""
    waiting = deque[Future[dict[K, V]]]()
    with ThreadPoolExecutor(_AHEAD) as pool:
        for one in found:
            waiting.append(pool.submit(_copied, one))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _copied(values: Mapping[K, V]) -> dict[K, V]:
    return dict(values.items())


def to_arrays(values: Mapping[TopicPartition, int]) -> dict[str, list[int | None]]:
    """One array per topic, indexed by partition, with None for partitions without a value."""
    sizes = {topic: partition + 1 for topic, partition in sorted(values)}
    arrays: dict[str, list[int | None]] = {topic: [None] * size for topic, size in sizes.items()}
    for (topic, partition), value in values.items():
        arrays[topic][partition] = value
    return arrays


def from_arrays(arrays: Mapping[str, Sequence[int | None]]) -> dict[TopicPartition, int]:
    """The inverse of `to_arrays`."""
    return {
        tp: value
        for topic, array in arrays.items()
        for tp, value in zip(_partitions(topic, len(array)), array, strict=True)
        if value is not None
    }


@lru_cache(10_000)
def _partitions(topic: str, count: int) -> list[TopicPartition]:
    """The topic's first partitions: the same objects in all values, which are decoded several times in each batch."""
    return [TopicPartition(topic, partition) for partition in range(count)]


def encode(values: Mapping[TopicPartition, int]) -> str:
    """The compact form: ``{"orders":[120,null,7]}`` for partitions 0 and 2 of orders; ``zlib:…`` if it is long."""
    return compact_text(json.dumps(to_arrays(values), separators=(",", ":")), _READABLE)


def decode(text: str) -> dict[TopicPartition, int]:
    """The inverse of `encode`."""
    return from_arrays(json.loads(plain_text(text)))


def starts(ranges: Ranges) -> dict[TopicPartition, int]:
    return {tp: r.start for tp, r in ranges.items()}


def ends(ranges: Ranges) -> dict[TopicPartition, int]:
    return {tp: r.end for tp, r in ranges.items()}


def lengths(ranges: Ranges) -> dict[TopicPartition, int]:
    return {tp: len(r) for tp, r in ranges.items()}


def reached(offsets: Offsets, wanted: Offsets) -> bool:
    """Whether these next offsets have reached the wanted ones in every topic-partition."""
    return all(offsets.get(tp, 0) >= offset for tp, offset in wanted.items())


def total(ranges: Ranges) -> int:
    """The number of offsets in the ranges, an upper bound of their records."""
    return sum(len(r) for r in ranges.values())


def minimum(many: Iterable[Offsets]) -> dict[TopicPartition, int]:
    """The smallest offset of each topic-partition that all of them have."""
    found = list(many)
    if not found:
        return {}
    common = set(found[0]).intersection(*found[1:])
    return {tp: min(offsets[tp] for offsets in found) for tp in sorted(common)}
