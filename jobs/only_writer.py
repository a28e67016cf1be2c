"""One pipeline writes a table.

A second one would change rows of the first: keys, offsets and batch numbers mean something in one pipeline only. Every
kind asks here when a pipeline begins with a table, before anything is written, and makes sure that of two pipelines
that begin at the same moment one is refused.
"""

from __future__ import annotations

from collections.abc import Collection

from resources.errors import ConfigurationError


def require_only_writer(pipeline: str, others: Collection[str], where: str) -> None:
    """
    Args:
        others: pipelines that the table has a state of.

    Raises:
        ConfigurationError: there are some.
    """
    if others:
        names = ", ".join(sorted(others))
        raise ConfigurationError(
            f"pipeline {names} writes this table, so pipeline {pipeline} cannot",
            where=where,
            remedy="write to a table of its own, or read both sources in one pipeline; if "
            f"{names} is gone or has a new name: `batchmerge offsets take-over {pipeline} --from {names}`",
        )
