"""Runs work exactly once through numbered BigQuery jobs whose ids every process computes alike.

Attempt n + 1 may be submitted only after attempt n is known to be over without having completed the work: it failed
(then BigQuery has changed nothing), or it was a step that leaves the work open. BigQuery accepts an id once for
good. So all processes agree on the order of the attempts, and at most one attempt completes the work. A process that
slept and submits late meets 409, waits for the existing job, and reads its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from resources.bigquery import BigQuery, Job
from resources.errors import CommitFailed


@dataclass(frozen=True)
class JobSequence:
    """The attempts ``<prefix>-1``, ``<prefix>-2``, … at one piece of work.

    Attributes:
        seconds: how long one job may take before it is cancelled.
        closes: whether a successful job completes the work.
    """

    bigquery: BigQuery
    prefix: str
    seconds: float
    closes: Callable[[Job], bool] = lambda _job: True

    def run_until_done(self, submit: Callable[[str], Job]) -> Job:
        """The job that completed the work; submits attempts until there is one.

        Args:
            submit: submits under an id, or returns the job that has it.

        Raises:
            BatchmergeError: why our own attempt failed.
        """
        number, job = self.newest()
        while job is None or not self._completed(job):
            number += 1
            job = self._run(number, submit)
        return job

    def closed(self) -> Job | None:
        """The job that completed the work, once it is over; None if no attempt has completed it."""
        _, job = self.newest()
        return job if job and self._completed(job) else None

    def step(self, submit: Callable[[str], Job]) -> Job:
        """One more attempt, for a step that leaves the work open. The job may be another process's: look at its labels.

        Raises:
            CommitFailed: the work is completed already.
            BatchmergeError: why the attempt failed.
        """
        number, job = self.newest()
        if job and self._completed(job):
            raise CommitFailed("another run was faster", where=self.prefix, remedy="plan again from what it committed")
        return self._run(number + 1, submit)

    def newest(self) -> tuple[int, Job | None]:
        """The number and job of the last attempt; 0 and None without any. Numbers have no gaps: search by halving."""
        job = self._find(1)
        if job is None:
            return 0, None
        low, step = 1, 1
        while (found := self._find(low + step)) is not None:
            low, job, step = low + step, found, step * 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            found = self._find(middle)
            if found is None:
                high = middle
            else:
                low, job = middle, found
        return low, job

    def _run(self, number: int, submit: Callable[[str], Job]) -> Job:
        """Submits an attempt, and waits for it. Raises BatchmergeError: it failed."""
        job = submit(f"{self.prefix}-{number}")
        self.bigquery.finish(job, self.seconds)
        return job

    def _completed(self, job: Job) -> bool:
        """Whether the job has completed the work; waits until it is over."""
        return self.bigquery.wait(job, self.seconds) is None and self.closes(job)

    def _find(self, number: int) -> Job | None:
        return self.bigquery.find_job(f"{self.prefix}-{number}")
