"""One pipeline file for many topics (`source.for_each: topic`): the pipeline of each topic. Pure.

Each topic has a member: a pipeline of its own, with its own table names, intermediate table, batch numbers and
committed states, so that everything that is true of a pipeline is true of it. The file applies to all of them, except
its `overrides`. A topic that cannot become a valid pipeline is refused, without effect on others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jobs.destinations.registry import kinds
from jobs.spec.overrides import applying, with_overrides
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.table_templates import Words, rendered, words_of
from resources.config_files.mistakes import Mistake, Mistakes, Path
from resources.config_files.models import examine
from resources.errors import ConfigurationError

# Separates the pipeline's name and the topic's in a member's name; names of pipelines must not contain it.
SEPARATOR = "__"
_READABLE = re.compile(r"[a-z0-9]+(?:[._][a-z0-9]+)*")
_LONGEST = 100


@dataclass(frozen=True)
class Member:
    """The pipeline of one topic; with `new_tables` the one pipeline, limited to the tables of one name.

    Attributes:
        key: the topic, or the value of `route_by` that names the tables.
    """

    key: str
    name: str
    spec: PipelineSpec


@dataclass(frozen=True)
class RefusedTopic:
    """A topic that cannot become a valid pipeline; the mistakes' paths are those of the pipeline file."""

    topic: str
    mistakes: Sequence[Mistake]

    def error(self, pipeline: str) -> ConfigurationError:
        remedies = dict.fromkeys(mistake.remedy for mistake in self.mistakes if mistake.remedy)
        alone = f"for this topic alone under `overrides`, `{self.topic}`; or write `leave_out: true` there"
        return ConfigurationError(
            "; ".join(mistake.placed for mistake in self.mistakes),
            where=f"pipeline {pipeline}",
            remedy=f"{'; '.join(remedies) or 'correct it'}, {alone}",
        )


@dataclass(frozen=True)
class Expansion:
    """The members and the refused topics of a pipeline file, in the order of the given topics."""

    members: Sequence[Member]
    refused: Sequence[RefusedTopic] = ()


def member_name(pipeline: str, topic: str) -> str:
    """``<pipeline>__<topic>`` with `__` for each dot. It is part of table names, so it does not depend on other topics.
    A topic that would not be unique in this way (`A.b`, `a-b`, `a__b`) gets a hash of its name as a suffix."""
    plain = re.sub(r"[^a-z0-9]+", "_", topic.lower()).strip("_")
    if _READABLE.fullmatch(topic) and len(topic) <= _LONGEST:
        return f"{pipeline}{SEPARATOR}{topic.replace('.', SEPARATOR)}"
    return f"{pipeline}{SEPARATOR}{plain[:_LONGEST]}{SEPARATOR}h{hashlib.sha256(topic.encode()).hexdigest()[:8]}"


def is_read(spec: PipelineSpec, topic: str) -> bool:
    """Whether the file names or matches the topic, and does not exclude it."""
    named = spec.source.may_have(topic)
    return named and topic not in spec.own_topics and not any(o.leave_out for o in applying(spec, topic).values())


@dataclass(frozen=True)
class _File:
    """A pipeline file that can be a cache key: equal if its text is."""

    spec: PipelineSpec = field(compare=False)
    text: str

    @classmethod
    def of(cls, spec: PipelineSpec) -> _File:
        return cls(spec, json.dumps([spec.written, spec.model_dump(mode="json")], default=str))


def expand(pipeline: str, spec: PipelineSpec, topics: Iterable[str], later: Collection[str] = frozenset()) -> Expansion:
    """The members of these topics. If two would have the same table, the first gets it, so that none loses its table.

    Args:
        topics: those that the file does not read are skipped.
        later: topics that appeared after the pipeline had begun: they are read from their first record, even if others
            began at their end.
    """
    members, refused, file = list[Member](), list[RefusedTopic](), _File.of(spec)
    taken: dict[tuple[str, str, str], Member] = {}
    for topic in topics:
        if not is_read(spec, topic):
            continue
        found = _member(pipeline, file, topic, topic in later)
        mistakes = list(_table_twice(found, taken)) if isinstance(found, Member) else found
        if mistakes:
            refused.append(RefusedTopic(topic, mistakes))
            continue
        assert isinstance(found, Member)
        members.append(found)
        taken.update({table.place: found for table in found.spec.tables})
    return Expansion(members, refused)


def member_of(pipeline: str, spec: PipelineSpec, topic: str, later: Collection[str] = frozenset()) -> Member:
    """The member of one topic.

    Raises:
        ConfigurationError: the file does not read the topic, or it cannot become a valid pipeline.
    """
    if not is_read(spec, topic):
        raise ConfigurationError(
            f"{topic} is not a topic of the pipeline",
            where=f"pipeline {pipeline}",
            remedy="name one that `source` names or matches and `overrides` does not leave out",
        )
    found = expand(pipeline, spec, [topic], later)
    for one in found.refused:
        raise one.error(pipeline)
    return found.members[0]


def written_topics(spec: PipelineSpec) -> list[str]:
    """The topics that the file names explicitly, which can be checked without Kafka."""
    named = [name for name in spec.overrides if re.fullmatch(r"[\w.-]+", name)]
    return list(dict.fromkeys([*spec.source.topics, *(name for name in named if is_read(spec, name))]))


# Cached: a run needs its pipeline's members in each step, and making a member takes milliseconds.
@lru_cache(maxsize=2_000)
def _member(pipeline: str, file: _File, topic: str, later: bool) -> Member | list[Mistake]:
    spec = file.spec
    overrides = {name: one.model_dump(exclude_unset=True) for name, one in applying(spec, topic).items()}
    document = with_overrides(spec, spec.written, overrides.values())
    try:
        tables = list(_rendered(document["tables"], words_of(topic, spec.source.pattern)))
    except Mistakes as problem:
        return [_in_file(mistake, topic, overrides) for mistake in problem.found]
    examined = examine(PipelineSpec, _narrowed({**document, "tables": tables}, topic, later))
    if examined.value is None:
        return [_in_file(mistake, topic, overrides) for mistake in examined.mistakes]
    return Member(topic, member_name(pipeline, topic), examined.value)


def _in_file(mistake: Mistake, topic: str, overrides: dict[str, Any]) -> Mistake:
    """A mistake in a member's document, with its path in the file: in the last of its overrides that has such a part,
    else in what holds for all topics."""
    path = mistake.path
    for name, override in reversed(overrides.items()):
        for_all = path[:1] == ("tables",) and isinstance(override.get("tables"), dict)
        inside = path[:1] + path[2:] if for_all else path
        if _has(override, inside):
            path = ("overrides", name, *inside)
            break
    return Mistake(path, f"topic {topic}: {mistake.what}", mistake.remedy, mistake.at_key)


def _has(document: Any, path: Path) -> bool:
    for step in path:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _rendered(tables: Sequence[dict[str, Any]], words: Words) -> Iterator[dict[str, Any]]:
    for number, table in enumerate(tables):
        try:
            yield {**table, "table": rendered(table["table"], words)}
        except Mistakes as problem:
            raise Mistakes([m.below(("tables", number, "table")) for m in problem.found]) from None


def _narrowed(document: Mapping[str, Any], topic: str, later: bool) -> dict[str, Any]:
    """The document restricted to this topic."""
    kept = {name: value for name, value in document.items() if name != "overrides"}
    source = {name: value for name, value in document["source"].items() if name not in ("for_each", "pattern")}
    source["topics"] = [topic]
    if later and source.get("start") == "latest":
        source["start"] = "earliest"
    if "per_topic" in source:
        source["per_topic"] = {name: value for name, value in source["per_topic"].items() if name == topic}
    if isinstance(source.get("start"), dict) and "offsets" in source["start"]:
        offsets = {name: value for name, value in source["start"]["offsets"].items() if name == topic}
        source["start"] = {"offsets": offsets}
    if skipped := (kept.get("maintenance") or {}).get("skip_tables"):
        # Without a look at their other options, which are not examined yet.
        own = [kinds()[table["kind"]].table.model_construct(**table) for table in document["tables"]]
        named = [name for name in skipped if any(table.is_called(name) for table in own)]
        kept["maintenance"] = {**kept["maintenance"], "skip_tables": named}
    return {**kept, "source": source}


def _table_twice(found: Member, taken: Mapping[tuple[str, str, str], Member]) -> Iterator[Mistake]:
    for number, table in enumerate(found.spec.tables):
        other = taken.get(table.place)
        if other is None:
            continue
        keys = [one.spec.changes.key.columns if one.spec.changes.key else [] for one in (other, found)]
        differ = f", and their keys differ ({', '.join(keys[0])}; {', '.join(keys[1])})" if keys[0] != keys[1] else ""
        yield Mistake(
            ("tables", number, "table"),
            f"topic {found.key}: {table.table} is the table of topic {other.key} already{differ}",
            "put more of the topic's name into the table's, or read both topics in a pipeline without `for_each`",
        )
