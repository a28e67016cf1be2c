"""Names of tables that follow from a topic's name: `shop.{topic[2]}`, `{source.schema}.{source.table}`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from resources.config_files.mistakes import Mistake, Mistakes, did_you_mean

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PART = re.compile(r"topic\[(-?\d+)\]")
# What Debezium's topic names end with: `<prefix>.<schema>.<table>`, of MySQL `<prefix>.<database>.<table>`.
_DEBEZIUM = {"source.table": -1, "source.schema": -2, "source.db": -2}
_DEBEZIUM_PARTS = 3

Words = Mapping[str, str]


def words_of(topic: str, pattern: str | None) -> Words:
    """What may stand in a template for this topic: name to text."""
    parts = topic.split(".")
    words = {"topic": topic, "name": re.sub(r"\W", "_", topic, flags=re.ASCII)}
    words |= {f"topic[{n}]": part for n, part in enumerate(parts)}
    words |= {f"topic[{n - len(parts)}]": part for n, part in enumerate(parts)}
    if len(parts) >= _DEBEZIUM_PARTS:
        words |= {name: parts[n] for name, n in _DEBEZIUM.items()}
    if pattern and (match := re.fullmatch(pattern, topic)):
        named = {**{str(n): text for n, text in enumerate(match.groups(), 1)}, **match.groupdict()}
        words |= {name: text for name, text in named.items() if text is not None}
    return words


def rendered(template: str, words: Words) -> str:
    """The name of a table.

    Raises:
        Mistakes: the template has a placeholder that this topic has nothing for.
    """
    missing = [name for name in placeholders(template) if name not in words]
    if missing:
        topic = words["topic"]
        what = f"`{{{missing[0]}}}` stands for nothing in the topic's name {topic}, which has {_parts(topic)}"
        raise Mistakes([Mistake((), what, "name this topic's tables under `overrides`, or leave the topic out there")])
    return _PLACEHOLDER.sub(lambda match: words[match[1]], template)


def placeholders(template: str) -> list[str]:
    return _PLACEHOLDER.findall(template)


def each(template: str) -> str:
    """A name for all tables of a template together: `shop.{topic[2]}` is `shop.each_topic_2`."""
    return _PLACEHOLDER.sub(lambda match: "each_" + re.sub(r"\W+", "_", match[1]).strip("_"), template)


def template_mistakes(spec: PipelineSpec) -> Iterator[Mistake]:
    """Placeholders that nothing could stand for, and those that are missing."""
    for number, table in enumerate(spec.tables):
        path, found = ("tables", number, "table"), placeholders(table.table)
        if spec.source.for_each is None and found:
            what = f"`{{{found[0]}}}` is a part of a topic's name, and the table is for all topics together"
            yield Mistake(path, what, "set `source.for_each: topic`")
        elif spec.source.for_each and not found:
            what = "each topic has tables of its own, and this name is the same for all of them"
            yield Mistake(path, what, "put `{topic}`, or a part of it such as `{topic[2]}`, into the name")
        elif spec.source.for_each:
            known = _known(spec.source.pattern)
            yield from (
                _unknown(path, name, known) for name in found if name not in known and not _PART.fullmatch(name)
            )


def _known(pattern: str | None) -> list[str]:
    compiled = re.compile(pattern or "")
    groups = [*compiled.groupindex, *(str(n) for n in range(1, compiled.groups + 1))]
    return ["topic", "name", *_DEBEZIUM, *groups]


def _unknown(path: tuple[str | int, ...], name: str, known: Sequence[str]) -> Mistake:
    shown = [f"{{{one}}}" for one in (known[0], "topic[0]", *known[1:])]
    return Mistake(path, f"`{{{name}}}` stands for nothing", did_you_mean(f"{{{name}}}", shown))


def _parts(topic: str) -> str:
    count = topic.count(".") + 1
    return f"{count} part{'s' if count > 1 else ''}"
