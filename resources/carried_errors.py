"""Errors as text, which gets them out of a Spark task: the run raises them as they were, not Spark's error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from resources import errors
from resources.errors import BatchmergeError, Interrupted, TransientError


def cause_of(found: Sequence[BatchmergeError]) -> BatchmergeError:
    """The error that explains those of several tasks: an interruption if there is one, else the first."""
    return next((e for e in found if isinstance(e, Interrupted)), found[0])


class CarriedError(Exception):
    """An error on its way out of a task whose rows go on to other tasks; `carried_by` reads its text."""


@contextmanager
def carrying_errors() -> Iterator[None]:
    """In a task: raises our errors so that `carried_by` finds them in Spark's error of the failed task. A class that is
    not in `resources.errors` becomes its nearest base class there."""
    try:
        yield
    except BatchmergeError as problem:
        kind = next(k for k in type(problem).__mro__ if k.__module__ == errors.__name__)
        fields = kind.__name__, problem.what, problem.where, problem.remedy
        raise CarriedError(f"<<{json.dumps(fields)}>>") from None


def carried_by(text: str) -> BatchmergeError | None:
    """The error that Spark's text carries."""
    found = re.search(r"CarriedError: <<(\[.*?\])>>", text)
    if found is None:
        return None
    name, what, where, remedy = json.loads(found[1])
    kind: type[BatchmergeError] = getattr(errors, name, TransientError)  # of a worker with another version
    return kind(what, where=where, remedy=remedy)
