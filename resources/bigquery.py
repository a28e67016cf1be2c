"""BigQuery through Google's client: one connection, its queries, and its jobs under ids that we choose.

A job id is a lock and a log entry in one: BigQuery accepts it once per project and location, for good. Whoever comes
second gets 409, and fetches the job that is there instead of doing its work again.

What is worth trying again is tried again within the connection's `retry_seconds`; then, and for everything else, the
errors of `bigquery_errors` are raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import pyarrow as pa
from google.api_core import exceptions as google_errors
from google.api_core.retry import Retry
from google.cloud import bigquery
from google.cloud.bigquery.retry import DEFAULT_RETRY
from google.cloud.bigquery.table import RowIterator

from resources.bigquery_errors import NETWORK, bigquery_errors, job_failure
from resources.bigquery_job_settings import Parameter, Value, append_settings, parameters_of, query_settings
from resources.bigquery_tables import BigQueryTables
from resources.errors import BatchmergeError, CommitStateUnknown, TimeLimitReached, Unavailable

_LOG = logging.getLogger("batchmerge")

Job = bigquery.QueryJob | bigquery.LoadJob
_NOT_OUR_JOB = (
    "grant `bigquery.jobs.get` on the project: another account may have submitted the job, and a run has to know what "
    "it has written"
)


class BigQuery(BigQueryTables):
    """A BigQuery connection with its queries and jobs."""

    def read(self, text: str, values: Mapping[str, Value], where: str) -> list[bigquery.Row]:
        """The rows of a SELECT."""
        with bigquery_errors(where):
            return list(self._answer(text, parameters_of(values)))

    def arrow(self, text: str, where: str, arrays: Sequence[bigquery.ArrayQueryParameter] = ()) -> pa.Table:
        """The rows of a SELECT as Arrow."""
        with bigquery_errors(where):
            return self._answer(text, arrays).to_arrow(create_bqstorage_client=False)

    def long_arrow(self, text: str, where: str, seconds: float) -> pa.Table:
        """As `arrow`, of a SELECT that may run this long: each request still has its own time limit."""
        with bigquery_errors(where):
            job = self.client.query(text, job_config=query_settings(()), **self._options)
            self.finish(job, seconds)
            return job.result(**self._options).to_arrow(create_bqstorage_client=False)

    def batches(self, table: str, first: int, count: int) -> Iterator[pa.RecordBatch]:
        """`count` rows of a table from row `first` (from 0) on: in no order, but the same while nobody changes it."""
        with bigquery_errors(table):
            found = self.client.get_table(self.table_id(table), **self._options)
            yield from self.client.list_rows(
                found, start_index=first, max_results=count, **self._options
            ).to_arrow_iterable()

    def _answer(self, text: str, parameters: Sequence[Parameter]) -> RowIterator:
        """The rows of a SELECT."""
        config = query_settings(parameters)

        def ask() -> RowIterator:
            return self.client.query_and_wait(
                text, job_config=config, retry=self._retry, wait_timeout=self.connection.retry_seconds
            )

        try:
            return ask()
        except google_errors.Conflict:
            # If an answer is lost, the client submits the query again under the same id: a conflict, if it has run.
            return ask()

    def change(self, text: str, values: Mapping[str, Value], where: str) -> int:
        """Runs one statement under an id that the client makes; returns how many rows it changed.

        Raises:
            CommitStateUnknown: the answer was lost.
        """
        with bigquery_errors(where):
            try:
                job = self.client.query(text, job_config=query_settings(parameters_of(values)), retry=self._retry)
                job.result(retry=self._retry, timeout=self.connection.retry_seconds)
            except NETWORK as problem:
                raise CommitStateUnknown(
                    f"the answer was lost ({type(problem).__name__})",
                    where=where,
                    remedy="check whether it took effect before you try again",
                ) from problem
            return int(job.num_dml_affected_rows or 0)

    def find_job(self, job_id: str) -> Job | None:
        """The job of that id, None where nobody ever submitted it."""
        ask = partial(self.client.get_job, job_id, **self._options)
        return cast(Job | None, self._found(job_id, ask, denied=_NOT_OUR_JOB))

    def submit_query(self, job_id: str, text: str, values: Mapping[str, Value], labels: Mapping[str, str]) -> Job:
        """Submits the statement under this id, or returns the job that already has it."""
        config = query_settings(parameters_of(values))
        config.labels = dict(labels)
        return self._submit(
            job_id, lambda: self.client.query(text, job_id=job_id, job_config=config, job_retry=None, **self._options)
        )

    def submit_load(self, job_id: str, file: Any, table: str, schema: Sequence[Any], labels: Mapping[str, str]) -> Job:
        """Submits a Parquet file as an append to an existing table, or returns the job that already has this id.

        Args:
            schema: the table's fields, each by `name`, `field_type`, `mode`, `fields` and `to_api_repr`.
        """
        # The upload itself is not idempotent, but the job id is: sending it again is safe.
        upload = self._retry(
            lambda: self.client.load_table_from_file(
                file,
                self.table_id(table),
                rewind=True,
                job_id=job_id,
                job_config=append_settings(schema, labels, self.connection.endpoint),
                num_retries=0,
            )
        )
        return self._submit(job_id, upload)

    def submit_load_from(
        self, job_id: str, files: Sequence[str], table: str, schema: Sequence[Any], labels: Mapping[str, str]
    ) -> Job:
        """As `submit_load`, for files that BigQuery reads itself; columns that the table lacks are ignored."""
        config = append_settings(schema, labels, self.connection.endpoint)
        config.ignore_unknown_values = True
        return self._submit(
            job_id,
            lambda: self.client.load_table_from_uri(
                list(files), self.table_id(table), job_id=job_id, job_config=config, **self._options
            ),
        )

    def _submit(self, job_id: str, submit: Callable[[], Job]) -> Job:
        with bigquery_errors(job_id):
            try:
                return submit()
            except (google_errors.Conflict, google_errors.BadRequest) as problem:
                # The emulator answers one of two submissions at the same moment with a 400 of its catalog.
                if not isinstance(problem, google_errors.Conflict) and "Duplicate key" not in str(problem):
                    raise
                # Right after a 409 the job may not be readable yet: google-cloud-python issue 2134.
                again = Retry(
                    predicate=lambda e: isinstance(e, google_errors.NotFound) or DEFAULT_RETRY._predicate(e),
                    timeout=self.connection.retry_seconds,
                )
                timeout = self.connection.timeout_seconds
                with bigquery_errors(job_id, denied=_NOT_OUR_JOB):
                    return cast(Job, self.client.get_job(job_id, retry=again, timeout=timeout))

    def wait(self, job: Job, seconds: float) -> BatchmergeError | None:
        """Waits until the job is over. Returns None where it did its work, else why it failed (then it did nothing).

        Raises:
            Unavailable: it is neither done nor failed after `seconds`, although it was asked to stop.
        """
        where, cancelled = str(job.job_id), False
        with bigquery_errors(where):
            if not self._is_over(job, seconds):
                cancelled = True
                _LOG.warning("%s is not done after %d s and is cancelled", where, seconds)
                job.cancel(**self._options)
                if not self._is_over(job, self.connection.retry_seconds):
                    raise Unavailable(
                        "the job is neither done nor failed after its time limit, and cancelling it does not end it",
                        where=where,
                        remedy="look at the job in BigQuery; the next run goes on as soon as it has ended",
                    )
        failure = job_failure(job)
        if cancelled and failure and failure.facts.get("reason") == "stopped":
            return TimeLimitReached(
                f"the job was not done within the time limit of {seconds:g} s and was cancelled",
                where=where,
                remedy="raise `time_limit_seconds` of the table, or lower `batch.max_records`",
                seconds=seconds,
            )
        return failure

    def finish(self, job: Job, seconds: float) -> None:
        """Waits until the job is done. Raises BatchmergeError: it failed, or did not end in time."""
        if failure := self.wait(job, seconds):
            raise failure

    def _is_over(self, job: Job, seconds: float) -> bool:
        """Asks until the job is done or the time is up, at first often, since most jobs are short: its end is noticed
        after a quarter of its time at most."""
        until, pause = time.monotonic() + seconds, 0.02
        while job.state != "DONE" and time.monotonic() < until:
            time.sleep(pause)
            pause = min(pause * 1.2, 5)
            job.reload(**self._options)
        return bool(job.state == "DONE")
