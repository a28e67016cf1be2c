"""Our errors as Dagster's: transient ones are tried again, terminal ones fail at once; each has its remedy."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from jobs.spec.automation import Retry
from resources.errors import BatchmergeError, InvariantBroken, TimeLimitReached, TransientError

_LOG = logging.getLogger("batchmerge")
# Longest pause in seconds before another try, unless the file wants longer ones from the start: so a system that was
# away for hours is found soon after its return.
_LONGEST_PAUSE = 600.0
# Tries after which any pause is longer than that.
_ENOUGH = 30


@contextmanager
def as_failures(retry: Retry | None = None, tries: int = 0) -> Iterator[None]:
    """Raises `dg.Failure` for each of our errors, and asks for another try of a transient one. Anything else is a bug:
    it keeps its traceback, and a second try would only hide it.

    No op has a retry policy of Dagster's, which would also try a step again that was asked to end.

    Args:
        tries: tries before this one; the context's `retry_number`.
    """
    try:
        yield
    except BatchmergeError as problem:
        failed = failure(problem)
        if retry is None or not failed.allow_retries:
            raise failed from None
        pause = _pause(retry, tries)
        if tries < retry.max_retries:
            _LOG.warning("%s; tried again in %.0f s", problem, pause)
        raise dg.RetryRequested(retry.max_retries, pause) from failed
    except dg.Failure:
        raise
    except Exception as bug:
        # Without its text, which alerts would repeat, and which may hold anything; the traceback has it.
        raise dg.Failure(f"unexpected {type(bug).__name__}", allow_retries=False) from bug


def _pause(retry: Retry, tries: int) -> float:
    """Seconds until the next try."""
    policy = dg.RetryPolicy(delay=retry.delay_seconds, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
    return min(policy.calculate_delay(min(tries, _ENOUGH) + 1), max(_LONGEST_PAUSE, retry.delay_seconds))


def failure(problem: BatchmergeError) -> dg.Failure:
    """A Dagster failure with what, where and the remedy in its metadata."""
    transient = isinstance(problem, TransientError)
    # A step that hung for its whole time limit would hold this run for as long again: the next run tries it.
    again = transient and not isinstance(problem, TimeLimitReached)
    how = "tried again" if again else "the next run tries again"
    facts = {f"fact {name}": str(value) for name, value in problem.facts.items()}
    texts = {"where": problem.where, "remedy": problem.remedy}
    return dg.Failure(
        description=str(problem),
        metadata={
            "error": type(problem).__name__,
            "class": f"transient: {how}" if transient else "terminal: needs a person",
            "what": problem.what,
            **{name: text for name, text in texts.items() if text},
            **facts,
        },
        allow_retries=again,
    )


def raise_for_checks(results: list[dg.AssetCheckResult], where: str) -> None:
    """Stops the step where an invariant is broken. Dagster would try it again, and a second try sees nothing new."""
    broken = [r for r in results if not r.passed and r.severity == dg.AssetCheckSeverity.ERROR]
    if broken:
        raise failure(
            InvariantBroken(
                f"checks failed: {'; '.join(f'{r.check_name} ({r.description})' for r in broken)}",
                where=where,
                remedy="look at the checks' metadata; nothing downstream runs until the checks pass again",
            )
        )
