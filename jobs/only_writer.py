"""Only one pipeline may write a table.

A second one would change rows of the first, since keys, offsets and batch numbers are only meaningful in one pipeline.
Every kind checks this when a pipeline begins with a table, before anything is written, and ensures that of two
pipelines that begin at the same time one is refused.
"""

from __future__ import annotations

from collections.abc import Collection

from jobs.spec.members import SEPARATOR
from resources.errors import ConfigurationError


def require_only_writer(pipeline: str, others: Collection[str], where: str) -> None:
    """Requires that there are no others.

    Args:
        others: other pipelines of which the table has a state.

    Raises:
        ConfigurationError: there are others.
    """
    if others:
        names = ", ".join(sorted(others))
        new, old = _of_file(pipeline, names)
        raise ConfigurationError(
            f"pipeline {names} writes this table, so pipeline {pipeline} cannot",
            where=where,
            remedy="write to a table of its own, or read both sources in one pipeline (topics of another Kafka cluster "
            "have to be mirrored to this one); if "
            f"{old} is gone or has a new name: `batchmerge offsets take-over {new} --from {old}`",
        )


def _of_file(pipeline: str, other: str) -> tuple[str, str]:
    """The names of both for people: if both are members of pipelines for the same topic, these pipelines' names."""
    names = pipeline.split(SEPARATOR)
    for n in range(1, len(names)):
        topic = SEPARATOR + SEPARATOR.join(names[n:])
        if other.endswith(topic) and other != topic:
            return SEPARATOR.join(names[:n]), other.removesuffix(topic)
    return pipeline, other
