"""One pipeline writes a table.

A second one would change rows of the first: keys, offsets and batch numbers mean something in one pipeline only. Every
kind asks here when a pipeline begins with a table, before anything is written, and makes sure that of two pipelines
that begin at the same moment one is refused. Where versions of before let two begin, both go on, and their logs say so.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import cache

from jobs.spec.members import SEPARATOR
from resources.errors import ConfigurationError

_LOG = logging.getLogger("batchmerge")


def require_only_writer(pipeline: str, others: Collection[str], where: str) -> None:
    """
    Args:
        others: pipelines that the table has a state of.

    Raises:
        ConfigurationError: there are some.
    """
    if others:
        names = ", ".join(sorted(others))
        new, old = _of_file(pipeline, names)
        raise ConfigurationError(
            f"pipeline {names} writes this table, so pipeline {pipeline} cannot",
            where=where,
            remedy="write to a table of its own, or read both sources in one pipeline; if "
            f"{old} is gone or has a new name: `batchmerge offsets take-over {new} --from {old}`",
        )


def _of_file(pipeline: str, other: str) -> tuple[str, str]:
    """As people name the two: where both are the members of two pipelines for one topic, those pipelines."""
    names = pipeline.split(SEPARATOR)
    for n in range(1, len(names)):
        topic = SEPARATOR + SEPARATOR.join(names[n:])
        if other.endswith(topic) and other != topic:
            return SEPARATOR.join(names[:n]), other.removesuffix(topic)
    return pipeline, other


def warn_of_other_writers(pipeline: str, others: Collection[str], where: str) -> None:
    """For a table that this pipeline has a state of, and others too; once a process."""
    if others:
        _warn(pipeline, ", ".join(sorted(others)), where)


@cache
def _warn(pipeline: str, others: str, where: str) -> None:
    _LOG.warning(
        "%s: pipeline %s writes this table, and so does pipeline %s: each changes rows of the other, and a replay "
        "cannot tell them apart. Fix: let one pipeline read both sources into a new table",
        where,
        pipeline,
        others,
    )
