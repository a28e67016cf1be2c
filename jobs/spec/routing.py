"""Which records a table takes: its `route`, or the pipeline's `route_by`.

A regular expression is applied twice, by Arrow (RE2) when a record is landed and by Spark (Java) when it is merged.
Both must agree on every value, or a record could be lost: so only what means the same in both is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator, model_validator

from jobs.schema.types import type_name
from jobs.spec.base import Spec

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

_ESCAPED = r"\\[-.\\\[\](){}*+?|^$/]"
_PLAIN = rf"(?:[^\\\[\](){{}}*+?|.^$]|{_ESCAPED}|\\[dDwW])"
_CLASS = rf"\[\^?(?:[^\\\[\]&^]|{_ESCAPED}|\\[dw])+\]"
_REPEAT = r"(?:[*+?]|\{\d+(?:,\d*)?\})\??"
# The same in RE2 and in Java: plain characters, classes, `.`, groups, alternatives, repetition.
_SAME_EVERYWHERE = re.compile(rf"(?:{_PLAIN}|{_CLASS}|\.|\((?:\?:|(?!\?))|\)|\||{_REPEAT})*", re.DOTALL)


class Route(Spec):
    """Which records the table takes; left out: all. Where `topics` and `field` are named, both must hold."""

    topics: list[str] | None = Field(None, min_length=1, description="records of these topics")
    field: str | None = Field(
        None, description="records whose field matches: a key column, a column of the value, or a path `column.part`"
    )
    matches: str | None = Field(
        None,
        description="regular expression that the field's value must match as a whole; upper and lower case count",
    )

    @field_validator("matches")
    @classmethod
    def _is_understood_everywhere(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        if not _SAME_EVERYWHERE.fullmatch(pattern):
            raise ValueError(
                "use plain characters, classes, groups, alternatives, repetition, \\d and \\w; `^` and `$` are not "
                "needed, since the whole value must match"
            )
        try:
            re.compile(pattern)
            pc.match_substring_regex(pa.array([""]), whole(pattern))
        except (re.error, pa.ArrowInvalid) as problem:
            raise ValueError(f"no regular expression: {problem}") from None
        return pattern

    @model_validator(mode="after")
    def _says_something(self) -> Route:
        if (self.field is None) != (self.matches is None):
            raise ValueError("`field` and `matches` belong together")
        if self.topics is None and self.field is None:
            raise ValueError("name `topics`, or `field` and `matches`; leave `route` out to take all records")
        if self.topics and len(set(self.topics)) != len(self.topics):
            raise ValueError("a topic is named twice")
        return self


def whole(pattern: str) -> str:
    """The pattern for engines that look for a match anywhere: of the whole value, `.` being any character."""
    return rf"(?s)\A(?:{pattern})\z"


def find_field(
    name: str, key: Sequence[pa.Field], value: Sequence[pa.Field]
) -> tuple[tuple[str, ...], pa.DataType] | None:
    """Where a field is in a landed row, and its type: a key column first, since a delete has those too."""
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


def route_problems(spec: PipelineSpec, key: Sequence[pa.Field], value: Sequence[pa.Field]) -> list[str]:
    """What is wrong with the routes of a pipeline file."""
    routed = [(f"tables: the route of {t.table}", t.route) for t in spec.tables if t.route]
    fields = [(where, route.field) for where, route in routed if route.field]
    problems = []
    if spec.route_by:
        fields.append(("route_by", spec.route_by))
        problems += [f"{where} and `route_by`: only one of them can rule" for where, _ in routed]
    for where, field in fields:
        problems += _field_problems(where, field, key, value)
    for where, route in routed:
        problems += [
            f"{where} names {t}, which is not a source topic" for t in route.topics or [] if not _is_read(spec, t)
        ]
    if all(t.route and t.route.topics for t in spec.tables):
        taken = {topic for _, route in routed for topic in route.topics or []}
        left = [t for t in spec.source.topics if t not in taken]
        problems += [f"source.topics: {t} is taken by no table" for t in left]
    return problems


def _is_read(spec: PipelineSpec, topic: str) -> bool:
    return topic in spec.source.topics or bool(spec.source.pattern and re.fullmatch(spec.source.pattern, topic))


def _field_problems(where: str, name: str, key: Sequence[pa.Field], value: Sequence[pa.Field]) -> list[str]:
    found = find_field(name, key, value)
    if found is None:
        known = ", ".join(f.name for f in [*key, *value])
        return [f"{where}: {name} is not a column of the key or the value (known: {known})"]
    kind = found[1]
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return [f"{where}: {name} is {type_name(kind)}; route by a string, a whole number or a boolean"]
    return []
