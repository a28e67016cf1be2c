"""The topics of a pipeline with `for_each` that were seen in Kafka, kept in the data folder.

What is made of the pipeline file (assets, names) must not wait for Kafka. So whoever has looked there remembers the
topics here, in the order in which they appeared: of two that want one table the first keeps it. So are names of tables
that records have brought (`new_tables`), but the landed table is the truth about those.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from jobs.spec.members import Expansion, Member, expand, member_of
from jobs.spec.pipeline import PipelineSpec
from resources.connections import data_folder
from resources.local.locks import exclusive

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class _Known:
    """The topics in the order of their appearance, and those of them that appeared when the pipeline had begun."""

    topics: tuple[str, ...] = ()
    later: frozenset[str] = frozenset()


def known_topics(pipeline: str, spec: PipelineSpec) -> list[str]:
    """Those that were seen, then those that the file names; what it does not read (any more) may be among them."""
    return list(dict.fromkeys([*_read(pipeline).topics, *spec.source.topics]))


def seen_names(pipeline: str) -> list[str]:
    """The names of tables that records have brought (`new_tables`)."""
    return list(_read(pipeline).topics)


def known_members(pipeline: str, spec: PipelineSpec) -> Expansion:
    """What the file says for each known topic."""
    return expand(pipeline, spec, known_topics(pipeline, spec), _read(pipeline).later)


def known_member(pipeline: str, spec: PipelineSpec, topic: str) -> Member:
    """The member of one topic, whether it was seen or not. Raises ConfigurationError."""
    return member_of(pipeline, spec, topic, _read(pipeline).later)


def remember(
    pipeline: str, topics: Iterable[str], begun: Callable[[list[str]], set[str]] = lambda _: set()
) -> list[str]:
    """Adds topics that were seen; returns those that are new. Where the folder cannot be written, a warning: the next
    look finds them again.

    Args:
        begun: those among the topics that are landed already. It is asked where the folder knows none: the pipeline
            may have begun on another machine, or before the folder was lost.
    """
    path, appeared = _file(pipeline), list[str]()
    try:
        with exclusive(path.with_suffix(".lock"), _LOG.warning):
            before = _read(pipeline)
            appeared = [topic for topic in topics if topic not in set(before.topics)]
            if appeared:
                first = set[str]() if before.topics else begun(appeared) or set(appeared)
                later = [*before.later, *(topic for topic in appeared if topic not in first)]
                written = path.with_suffix(".new")
                written.write_text(json.dumps({"topics": [*before.topics, *appeared], "later": later}, indent=1))
                os.replace(written, path)
    except OSError as problem:
        _LOG.warning("the topics of %s cannot be remembered in %s: %s", pipeline, path, problem.strerror)
    return appeared


def _file(pipeline: str) -> Path:
    return data_folder() / "topics" / f"{pipeline}.json"


def _read(pipeline: str) -> _Known:
    """Nothing where there is no such file, or none of ours: a look at Kafka finds the topics again."""
    try:
        found = json.loads(_file(pipeline).read_text())
        return _Known(tuple(map(str, found["topics"])), frozenset(map(str, found["later"])))
    except (OSError, ValueError, KeyError, TypeError):
        return _Known()
