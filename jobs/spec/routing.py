"""Which records are routed to a table: by its `route`, or by the pipeline's `route_by`.

A regular expression is applied twice, by Arrow (RE2) when a record is landed and by Spark (Java) when it is merged.
Both must agree on every value, or a record could be lost: so only syntax with the same meaning in both is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from jobs.schema.types import type_name
from jobs.spec.base import Names, Spec
from resources.config_files.mistakes import Mistake, Path, did_you_mean

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

_ESCAPED = r"\\[-.\\\[\](){}*+?|^$/]"
_PLAIN = rf"(?:[^\\\[\](){{}}*+?|.^$]|{_ESCAPED}|\\[dDwW])"
_CLASS = rf"\[\^?(?:[^\\\[\]&^]|{_ESCAPED}|\\[dw])+\]"
_REPEAT = r"(?:[*+?]|\{\d+(?:,\d*)?\})\??"
# Syntax with the same meaning in RE2 and Java: plain characters, classes, `.`, groups, alternatives, repetition.
_SAME_EVERYWHERE = re.compile(rf"(?:{_PLAIN}|{_CLASS}|\.|\((?:\?:|(?!\?))|\)|\||{_REPEAT})*", re.DOTALL)


class Route(Spec):
    """The records of a table; left out: all. If `topics` and `field` are given, both must match."""

    topics: Names | None = Field(None, min_length=1, description="records of these topics")
    field: str | None = Field(
        None, description="records whose field matches: a key column, a column of the value, or a path `column.part`"
    )
    matches: str | None = Field(
        None,
        description="regular expression that the field's value must match as a whole; upper and lower case count",
    )

    def own_mistakes(self) -> Iterator[Mistake]:
        if (self.field is None) != (self.matches is None):
            missing = "field" if self.field is None else "matches"
            yield Mistake((missing,), "it is missing", "name `field` and `matches`, which belong together")
        elif self.topics is None and self.field is None:
            remedy = "name `topics`, or `field` and `matches`; leave `route` out to take all records"
            yield Mistake((), "it says nothing", remedy)
        if self.matches is None:
            return
        if not _SAME_EVERYWHERE.fullmatch(self.matches):
            remedy = (
                "use plain characters, classes, groups, alternatives, repetition, \\d and \\w; `^` and `$` are not "
                "needed, since the whole value must match"
            )
            yield Mistake(("matches",), f"{self.matches!r} does not mean the same in Arrow and in Spark", remedy)
            return
        try:
            re.compile(self.matches)
            pc.match_substring_regex(pa.array([""]), whole(self.matches))
        except (re.error, pa.ArrowInvalid) as problem:
            yield Mistake(("matches",), f"{self.matches!r} is not a regular expression: {problem}")


def whole(pattern: str) -> str:
    """The pattern for engines that search for a match anywhere: matches the whole value; `.` is any character."""
    return rf"(?s)\A(?:{pattern})\z"


def find_field(
    name: str, key: Sequence[pa.Field], value: Sequence[pa.Field]
) -> tuple[tuple[str, ...], pa.DataType] | None:
    """The path of a field in a landed row, and its type: a key column first, since deletes have those too."""
    for struct, fields in (("key", key), ("value", value)):
        for field in fields:
            if field.name == name:
                return (struct, name), field.type
    head, *parts = name.split(".")
    found: pa.DataType | None = next((f.type for f in value if f.name == head), None)
    for part in parts:
        found = _part(found, part)
    return (("value", head, *parts), found) if found is not None else None


def _part(kind: pa.DataType | None, name: str) -> pa.DataType | None:
    position = kind.get_field_index(name) if kind is not None and pa.types.is_struct(kind) else -1
    return kind.field(position).type if kind is not None and position >= 0 else None


def route_mistakes(spec: PipelineSpec, key: Sequence[pa.Field], value: Sequence[pa.Field]) -> Iterator[Mistake]:
    """The mistakes in the routes of a pipeline file."""
    if spec.route_by:
        yield from _field_mistakes(("route_by",), spec.route_by, key, value)
    taken: set[str] = set()
    for number, table in enumerate(spec.tables):
        path = ("tables", number, "route")
        if table.route is None:
            continue
        if spec.route_by:
            yield Mistake(path, "there is a `route_by` too", "leave one of them out")
        if table.route.field:
            yield from _field_mistakes((*path, "field"), table.route.field, key, value)
        for at, topic in enumerate(table.route.topics or []):
            taken.add(topic)
            if not spec.source.may_have(topic):
                remedy = did_you_mean(topic, spec.source.topics) or "name a topic that `source.pattern` matches"
                yield Mistake((*path, "topics", at), f"{topic} is not a topic of the source", remedy)
    if all(t.route and t.route.topics for t in spec.tables):
        for at, topic in enumerate(spec.source.topics):
            if topic not in taken:
                remedy = "name it in a table's route, or leave it out here"
                yield Mistake(("source", "topics", at), f"{topic} is routed to no table", remedy)


def _field_mistakes(path: Path, name: str, key: Sequence[pa.Field], value: Sequence[pa.Field]) -> Iterator[Mistake]:
    found = find_field(name, key, value)
    if found is None:
        known = list(dict.fromkeys(f.name for f in [*key, *value]))
        remedy = did_you_mean(name, known, f"name one of {', '.join(known)}")
        yield Mistake(path, f"{name} is not a column of the key or the value", remedy)
        return
    kind = found[1]
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        yield Mistake(path, f"{name} is {type_name(kind)}", "route by a string, a whole number or a boolean")
