"""Errors as texts, for the way out of a Spark task: the run raises them as they were, not as text in Spark's."""

from __future__ import annotations

from collections.abc import Sequence

from resources.errors import (
    BadRecords,
    BatchmergeError,
    CommitFailed,
    ConfigurationError,
    Interrupted,
    StorageError,
    TerminalError,
    TransientError,
    Unavailable,
)

_CARRIED: tuple[type[BatchmergeError], ...] = (
    BadRecords,
    Interrupted,
    CommitFailed,
    Unavailable,
    TransientError,
    StorageError,
    ConfigurationError,
    TerminalError,
)


def error_to_fields(problem: BatchmergeError) -> Sequence[str]:
    """An error as strings; of a kind that is not known here, it is terminal."""
    kind = next((k for k in _CARRIED if isinstance(problem, k)), TerminalError)
    return kind.__name__, problem.what, problem.where, problem.remedy


def error_from_fields(kind: str, what: str, where: str, remedy: str) -> BatchmergeError:
    """The inverse of `error_to_fields`."""
    found = next((k for k in _CARRIED if k.__name__ == kind), TransientError)
    return found(what, where=where, remedy=remedy)


def worst(errors: Sequence[BatchmergeError]) -> BatchmergeError:
    """Of several tasks' errors: an interruption before everything, since the others may follow from it."""
    return next((e for e in errors if isinstance(e, Interrupted)), errors[0])
