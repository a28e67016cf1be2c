"""The topics of a pipeline with `for_each` that were seen in Kafka, kept in the data folder.

Building Dagster's assets from the pipeline file must not wait for Kafka. So every process that has read the topics
stores them here, in the order in which they appeared: if two topics would have the same table, the first one gets it.
The steps of a run know the topics of a `pattern` from here alone.
Names of tables that records brought (`new_tables`) are stored too, but for those the intermediate table counts.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from jobs.spec.members import Expansion, Member, expand, member_of
from jobs.spec.pipeline import PipelineSpec
from resources.connections import data_folder
from resources.errors import StorageError
from resources.local.locks import exclusive

_LOG = logging.getLogger("batchmerge")


@dataclass(frozen=True)
class _Known:
    """The topics in the order of their appearance, and those that appeared after the pipeline had begun."""

    topics: tuple[str, ...] = ()
    later: frozenset[str] = frozenset()


def known_topics(pipeline: str, spec: PipelineSpec) -> list[str]:
    """The topics that were seen, then those that the file names; some may not be read (any more)."""
    return list(dict.fromkeys([*_read(pipeline).topics, *spec.source.topics]))


def seen_names(pipeline: str) -> list[str]:
    """The names that the folder has: of topics, or of tables that records have brought (`new_tables`)."""
    return list(_read(pipeline).topics)


def known_members(pipeline: str, spec: PipelineSpec) -> Expansion:
    """The members for all known topics."""
    return expand(pipeline, spec, known_topics(pipeline, spec), _read(pipeline).later)


def known_member(pipeline: str, spec: PipelineSpec, topic: str) -> Member:
    """The member of one topic, whether it was seen or not. Raises ConfigurationError."""
    return member_of(pipeline, spec, topic, _read(pipeline).later)


def remember(
    pipeline: str, topics: Collection[str], begun: Callable[[list[str]], set[str]] = lambda _: set()
) -> list[str]:
    """Adds topics that were seen; returns the new ones.

    Args:
        begun: returns those of the topics that are landed already. Called if the folder has no topics, because the
            pipeline may have begun on another machine, or before the folder was lost.

    Raises:
        StorageError: there are new topics, and the folder cannot be written.
    """
    path, appeared = _file(pipeline), list[str]()
    if set(topics) <= set(_read(pipeline).topics):
        return []
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
        raise StorageError(
            f"the topics of {pipeline} cannot be kept: {problem.strerror or problem}",
            where=str(path),
            remedy="set BATCHMERGE_HOME to a folder that this user can write and lock, or list `source.topics`",
        ) from None
    return appeared


def remember_if_possible(
    pipeline: str, topics: Collection[str], begun: Callable[[list[str]], set[str]] = lambda _: set()
) -> list[str]:
    """As `remember`, for names that are known without the folder: if it cannot be written, this is only logged."""
    try:
        return remember(pipeline, topics, begun)
    except StorageError as problem:
        _LOG.warning("%s", problem)
        return []


def _file(pipeline: str) -> Path:
    return data_folder() / "topics" / f"{pipeline}.json"


def _read(pipeline: str) -> _Known:
    """The stored topics; nothing if the file is missing or not ours: they are found in Kafka again."""
    try:
        found = json.loads(_file(pipeline).read_text())
        return _Known(tuple(map(str, found["topics"])), frozenset(map(str, found["later"])))
    except (OSError, ValueError, KeyError, TypeError):
        return _Known()
