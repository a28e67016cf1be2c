"""Errors as text, which gets them out of a Spark task: the run raises them as they were, not Spark's error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from resources import errors
from resources.errors import BatchmergeError, Interrupted, TransientError


def error_to_fields(problem: BatchmergeError) -> Sequence[str]:
    """An error as strings; a class that is not in `resources.errors` becomes its nearest base class there."""
    kind = next(k for k in type(problem).__mro__ if k.__module__ == errors.__name__)
    return kind.__name__, problem.what, problem.where, problem.remedy


def error_from_fields(kind: str, what: str, where: str, remedy: str) -> BatchmergeError:
    """The inverse of `error_to_fields`."""
    found: type[BatchmergeError] = getattr(errors, kind, TransientError)
    return found(what, where=where, remedy=remedy)


def cause_of(found: Sequence[BatchmergeError]) -> BatchmergeError:
    """The error that explains those of several tasks: an interruption if there is one, else the first."""
    return next((e for e in found if isinstance(e, Interrupted)), found[0])


class CarriedError(Exception):
    """An error on its way out of a task whose rows go on to other tasks; `carried_by` reads its text."""


@contextmanager
def carrying_errors() -> Iterator[None]:
    """In a task: raises our errors so that `carried_by` finds them in Spark's error of the failed task."""
    try:
        yield
    except BatchmergeError as problem:
        raise CarriedError(f"<<{json.dumps(list(error_to_fields(problem)))}>>") from None


def carried_by(text: str) -> BatchmergeError | None:
    """The error that Spark's text carries."""
    found = re.search(r"CarriedError: <<(\[.*?\])>>", text)
    return error_from_fields(*json.loads(found[1])) if found else None
