"""Templates of table names, filled from a topic's name (`shop.{topic[2]}`, `{source.schema}.{source.table}`), or from a
field of the records (`shop.{route_by}`). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from resources.config_files.mistakes import Mistake, Mistakes, did_you_mean

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

_UNFIT = re.compile(r"[^\w.]", re.ASCII)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PART = re.compile(r"topic\[(-?\d+)\]")
_OF_FIELD = re.compile(r"route_by(\[-?\d+\])?")
# After a word: its text in lower case.
_LOWER = "|lower"
# The last parts of Debezium's topic names: `<prefix>.<schema>.<table>`, for MySQL `<prefix>.<database>.<table>`.
_DEBEZIUM = {"source.table": -1, "source.schema": -2, "source.db": -2}
_DEBEZIUM_PARTS = 3

# The source of each word in a template, for messages.
_WHOLE = {"topic": "the topic's name", "route_by": "the value"}

Words = Mapping[str, str]


def words_of(topic: str, pattern: str | None) -> Words:
    """The words of a template for this topic, with their texts. In parts of the topic's name `_` replaces characters
    that table names cannot have."""
    parts = topic.split(".")
    words = {**_with_parts("topic", topic), "name": topic.replace(".", "_")}
    if len(parts) >= _DEBEZIUM_PARTS:
        words |= {name: parts[n] for name, n in _DEBEZIUM.items()}
    if pattern and (match := re.fullmatch(pattern, topic)):
        named = {**{str(n): text for n, text in enumerate(match.groups(), 1)}, **match.groupdict()}
        words |= {name: text for name, text in named.items() if text is not None}
    return {name: text if name == "topic" else _UNFIT.sub("_", text) for name, text in words.items()}


def name_words(name: str) -> Words:
    """The words of a template for this value of `route_by`, with their texts."""
    return _with_parts("route_by", name)


def _with_parts(word: str, text: str) -> dict[str, str]:
    """The whole text, and its parts between dots, counted from both ends."""
    parts = text.split(".")
    numbered = {n: part for end in (0, len(parts)) for n, part in enumerate(parts, -end)}
    return {word: text, **{f"{word}[{n}]": part for n, part in numbered.items()}}


def rendered(template: str, words: Words) -> str:
    """The name of a table.

    Raises:
        Mistakes: the template has a placeholder for which this topic, or this value, has no part.
    """
    missing = [name for name in placeholders(template) if name not in words]
    if missing:
        whose, text = next((whose, words[word]) for word, whose in _WHOLE.items() if word in words)
        what = f"`{{{missing[0]}}}` stands for nothing in {whose} {text}, which has {_parts(text)}"
        raise Mistakes([Mistake((), what, "write a name that does without it")])
    return _PLACEHOLDER.sub(lambda match: _text(match[1], words), template)


def _text(placeholder: str, words: Words) -> str:
    word = placeholder.removesuffix(_LOWER)
    return words[word] if word == placeholder else words[word].lower()


def placeholders(template: str) -> list[str]:
    """The words that the template has."""
    return [placeholder.removesuffix(_LOWER) for placeholder in _PLACEHOLDER.findall(template)]


def is_alone(template: str) -> bool:
    """Whether the template is one placeholder, which is the table's whole name."""
    return _PLACEHOLDER.fullmatch(template) is not None


def each(template: str) -> str:
    """A name for all tables of a template: `shop.{topic[2]}` becomes `shop.each_topic_2`."""
    return _PLACEHOLDER.sub(lambda match: "each_" + re.sub(r"\W+", "_", match[1]).strip("_"), template)


def template_mistakes(spec: PipelineSpec) -> Iterator[Mistake]:
    """Mistakes: unknown placeholders, and missing ones."""
    each = "topic" if spec.source.for_each else f"value of {spec.route_by}" if spec.new_tables else None
    known = _known(spec)
    for number, table in enumerate(spec.tables):
        path, found = ("tables", number, "table"), placeholders(table.table)
        if each is None and found:
            what = f"`{{{found[0]}}}` is a part of a topic's name, and the table is for all topics together"
            remedy = "set `source.for_each: topic`"
            if _OF_FIELD.fullmatch(found[0]):
                what, remedy = f"`{{{found[0]}}}` stands for a value of `route_by`", "set `new_tables`"
            yield Mistake(path, what, remedy)
        elif each and not found:
            what = f"each {each} has tables of its own, and this name is the same for all of them"
            yield Mistake(
                path, what, f"put `{{{known[0]}}}`, or a part of it such as `{{{known[0]}[2]}}`, into the name"
            )
        elif each:
            part = _PART if spec.source.for_each else _OF_FIELD
            yield from (_unknown(path, name, known) for name in found if name not in known and not part.fullmatch(name))
            if is_alone(table.table) and (found[0] in ("name", *_DEBEZIUM) or "[" in found[0]):
                what = f"`{table.table}` is one part, and a table's name begins with its namespace"
                yield Mistake(path, what, f"put the namespace in front of it, as in `shop.{table.table}`")


def _known(spec: PipelineSpec) -> list[str]:
    """The words that a template may have; those with a number are parts of the first."""
    if spec.new_tables:
        return ["route_by"]
    compiled = re.compile(spec.source.pattern or "")
    groups = [*compiled.groupindex, *(str(n) for n in range(1, compiled.groups + 1))]
    return ["topic", "name", *_DEBEZIUM, *groups]


def _unknown(path: tuple[str | int, ...], name: str, known: Sequence[str]) -> Mistake:
    shown = [f"{{{one}}}" for one in (known[0], f"{known[0]}[0]", *known[1:])]
    return Mistake(path, f"`{{{name}}}` stands for nothing", did_you_mean(f"{{{name}}}", shown))


def _parts(topic: str) -> str:
    count = topic.count(".") + 1
    return f"{count} part{'s' if count > 1 else ''}"
