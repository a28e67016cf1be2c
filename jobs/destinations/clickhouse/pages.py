"""Pages: the rows of many topic-partitions as one row of the state, since Keeper takes as long for each row. Pure.

A page's name has a topic's place taken by `PAGE`, which no topic can be called. Each topic-partition has one page, for
good. Where a page has it, its own row, which an earlier version or a smaller pipeline wrote, does not count any more.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

from jobs.compact_text import compact_text, plain_text
from jobs.destinations.clickhouse.state import PartitionRow
from jobs.destinations.clickhouse.transitions import Phase, Span
from jobs.offsets import TopicPartition

PAGE = "*"
Page = Mapping[TopicPartition, PartitionRow]
# The most pages of a table, and the partitions of a topic that are in one: never change them.
_PAGES, _OF_A_TOPIC = 64, 1000
_READABLE = 4000


def page_of(tp: TopicPartition) -> str:
    """The last two parts of the name of a topic-partition's page."""
    return f"{PAGE}/{zlib.crc32(f'{tp.topic}/{tp.partition // _OF_A_TOPIC}'.encode()) % _PAGES}"


def by_page(tps: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found = defaultdict[str, list[TopicPartition]](list)
    names = dict[tuple[str, int], str]()
    for tp in tps:
        part = tp.topic, tp.partition // _OF_A_TOPIC
        if part not in names:
            names[part] = page_of(tp)
        found[names[part]].append(tp)
    return found


def to_text(page: Page) -> str:
    """Arrays of the partitions of each topic that were written last by the same step, and are in the same phase."""
    groups = defaultdict[tuple[object, ...], tuple[list[int], list[int], list[int]]](lambda: ([], [], []))
    for tp, row in sorted(page.items()):
        group = groups[tp.topic, row.topic_id, row.phase.value, row.batch, row.commit_id]
        for values, value in zip(group, (tp.partition, *row.span), strict=True):
            values.append(value)
    return compact_text(json.dumps([[*said, *values] for said, values in groups.items()]), _READABLE)


def from_text(text: str) -> dict[TopicPartition, PartitionRow]:
    """The inverse of `to_text`."""
    return {
        TopicPartition(topic, partition): PartitionRow(Span(first, last), Phase(phase), batch, commit_id, topic_id)
        for topic, topic_id, phase, batch, commit_id, *values in json.loads(plain_text(text))
        for partition, first, last in zip(*values, strict=True)
    }


def in_pieces(texts: Iterable[str], most: int) -> list[str]:
    """The texts of pages, one a line, in pieces of at most so many characters."""
    lines = "\n".join(texts)
    return [lines[at : at + most] for at in range(0, len(lines), most)]
