"""BigQuery through Google's client: one connection, its jobs under ids that we choose, and its errors in our tree.

A job id is a lock and a log entry in one: BigQuery accepts it once per project and location, for good. Whoever comes
second gets 409, and fetches the job that is there instead of doing its work again.

What is worth trying again is tried again within the connection's `retry_seconds`; then, and for everything else, the
errors of `bigquery_errors` are raised.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar, cast

import pyarrow as pa
from google.api_core import exceptions as google_errors
from google.api_core.client_options import ClientOptions
from google.api_core.retry import Retry
from google.cloud import bigquery
from google.cloud.bigquery.retry import DEFAULT_RETRY
from google.cloud.bigquery.table import RowIterator

from resources.bigquery_credentials import credentials_of
from resources.bigquery_errors import NETWORK, bigquery_errors, job_failure
from resources.connections import BigQueryConnection
from resources.errors import BatchmergeError, CommitStateUnknown, ConfigurationError, TimeLimitReached, Unavailable

_LOG = logging.getLogger("batchmerge")

Job = bigquery.QueryJob | bigquery.LoadJob
Value = str | int | float | None
T = TypeVar("T")
_LONGEST_LABEL = 63
_NOT_OUR_JOB = (
    "grant `bigquery.jobs.get` on the project: another account may have submitted the job, and a run has to know what "
    "it has written"
)
_Parameter = bigquery.ScalarQueryParameter | bigquery.ArrayQueryParameter


@dataclass(frozen=True)
class BigQuery:
    """A BigQuery connection by its name in the connections file."""

    name: str
    connection: BigQueryConnection

    def __reduce__(self) -> tuple[type[BigQuery], tuple[str, BigQueryConnection]]:
        """Without the client, which each worker of Spark opens for itself."""
        return BigQuery, (self.name, self.connection)

    @cached_property
    def client(self) -> bigquery.Client:
        """The client; opened on first use.

        Raises:
            ConfigurationError: no credentials, or they cannot be read.
        """
        found = self.connection
        with bigquery_errors(f"connection {self.name}"):
            return bigquery.Client(
                project=found.billing_project or found.project,
                location=found.location,
                credentials=credentials_of(found, self.name),
                client_options=ClientOptions(api_endpoint=found.endpoint) if found.endpoint else None,
            )

    @property
    def _retry(self) -> Retry:
        return DEFAULT_RETRY.with_timeout(self.connection.retry_seconds)

    @property
    def _options(self) -> dict[str, Any]:
        return {"retry": self._retry, "timeout": self.connection.timeout_seconds}

    def table_id(self, table: str) -> str:
        """``dataset.table``, or a dataset, with its project."""
        return f"{self.connection.project}.{table}"

    def find_table(self, table: str) -> bigquery.Table | None:
        """The table's metadata, None where it does not exist (or its dataset does not)."""
        return self._found(table, lambda: self.client.get_table(self.table_id(table), **self._options))

    def _found(self, where: str, ask: Callable[[], T], **errors: str) -> T | None:
        """What the client answers, None where there is no such thing; `errors` as `bigquery_errors` has them."""
        with bigquery_errors(where, **errors):
            try:
                return ask()
            except google_errors.NotFound:
                return None

    def create_dataset(self, dataset: str) -> None:
        """Creates the dataset where there is none, which takes a permission that is not needed otherwise."""
        if self._find_dataset(dataset) is not None:
            return
        with bigquery_errors(dataset):
            wanted = bigquery.Dataset(self.table_id(dataset))
            wanted.location = self.connection.location
            self.client.create_dataset(wanted, exists_ok=True, **self._options)

    def check_location(self, dataset: str) -> None:
        """Checks the location of a dataset in which a query finds nothing: it may search in another location.

        Raises:
            ConfigurationError: the dataset is not where the connection says.
        """
        found = self._find_dataset(dataset)
        if found is not None and found.location.lower() != self.connection.location.lower():
            raise ConfigurationError(
                f"the dataset is in {found.location}, the connection {self.name} says {self.connection.location}",
                where=f"dataset {dataset}",
                remedy=f"write `location: {found.location}` in the connection, or use another dataset",
            )

    def _find_dataset(self, dataset: str) -> bigquery.Dataset | None:
        return self._found(dataset, lambda: self.client.get_dataset(self.table_id(dataset), **self._options))

    def create_table(self, table: bigquery.Table) -> bigquery.Table:
        """Creates the table, or returns the one that somebody else just created.

        Its texts are compared as they are, whatever collation the dataset gives to new tables.
        """
        where = f"{table.dataset_id}.{table.table_id}"
        wanted = bigquery.Table.from_api_repr({**table.to_api_repr(), "defaultCollation": ""})
        with bigquery_errors(where):
            self.client.create_table(wanted, exists_ok=True, **self._options)
            return self.client.get_table(table.reference, **self._options)

    def create_lasting_table(self, table: bigquery.Table) -> bigquery.Table:
        """As `create_table`, without the expiry that the dataset gives to new tables and their partitions."""
        return self.lasting(self.create_table(table))

    def lasting(self, found: bigquery.Table) -> bigquery.Table:
        """The table, after its expiry and that of its partitions were removed."""
        by = found.time_partitioning
        if found.expires is None and (by is None or by.expiration_ms is None):
            return found
        found.expires = None
        if by is not None:
            wanted = bigquery.TimePartitioning(type_=by.type_, field=by.field)
            # BigQuery keeps what a request leaves out: only this way the client sends a null.
            wanted.expiration_ms = None
            found.time_partitioning = wanted
        return self.update_table(found, ["expires", "time_partitioning"] if by else ["expires"])

    def update_table(self, table: bigquery.Table, fields: Sequence[str]) -> bigquery.Table:
        """Writes these fields back, only if nobody changed the table since it was read.

        Raises:
            CommitFailed: somebody did.
        """
        with bigquery_errors(f"{table.dataset_id}.{table.table_id}"):
            return self.client.update_table(table, list(fields), **self._options)

    def add_labels(self, table: bigquery.Table, labels: Mapping[str, str]) -> None:
        """Writes labels of the table beside those that it has. Raises CommitFailed, as `update_table` does."""
        table.labels = {**table.labels, **labels}
        self.update_table(table, ["labels"])

    def delete_table(self, table: str) -> None:
        with bigquery_errors(table):
            self.client.delete_table(self.table_id(table), not_found_ok=True, **self._options)

    def tables(self, dataset: str) -> list[tuple[str, Mapping[str, str]]]:
        """``dataset.table`` and labels of every table of a dataset; empty where there is no dataset."""
        found = self._found(dataset, lambda: list(self.client.list_tables(self.table_id(dataset), **self._options)))
        return [(f"{dataset}.{item.table_id}", dict(item.labels)) for item in found or ()]

    def read(self, text: str, values: Mapping[str, Value], where: str) -> list[bigquery.Row]:
        """The rows of a SELECT."""
        with bigquery_errors(where):
            return list(self._answer(text, _parameters(values)))

    def arrow(self, text: str, where: str, arrays: Sequence[bigquery.ArrayQueryParameter] = ()) -> pa.Table:
        """The rows of a SELECT as Arrow."""
        with bigquery_errors(where):
            return self._answer(text, arrays).to_arrow(create_bqstorage_client=False)

    def long_arrow(self, text: str, where: str, seconds: float) -> pa.Table:
        """As `arrow`, of a SELECT that may run this long: each request still has its own time limit."""
        with bigquery_errors(where):
            job = self.client.query(text, job_config=_query_config(()), **self._options)
            self.finish(job, seconds)
            return job.result(**self._options).to_arrow(create_bqstorage_client=False)

    def batches(self, table: str, first: int, count: int) -> Iterator[pa.RecordBatch]:
        """`count` rows of a table from row `first` (from 0) on: in no order, but the same while nobody changes it."""
        with bigquery_errors(table):
            found = self.client.get_table(self.table_id(table), **self._options)
            yield from self.client.list_rows(
                found, start_index=first, max_results=count, **self._options
            ).to_arrow_iterable()

    def _answer(self, text: str, parameters: Sequence[_Parameter]) -> RowIterator:
        """The rows of a SELECT."""
        config = _query_config(parameters)

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
                job = self.client.query(text, job_config=_query_config(_parameters(values)), retry=self._retry)
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
        config = _query_config(_parameters(values))
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
                job_config=self._appending(schema, labels),
                num_retries=0,
            )
        )
        return self._submit(job_id, upload)

    def submit_load_from(
        self, job_id: str, files: Sequence[str], table: str, schema: Sequence[Any], labels: Mapping[str, str]
    ) -> Job:
        """As `submit_load`, for files that BigQuery reads itself; columns that the table lacks are ignored."""
        config = self._appending(schema, labels)
        config.ignore_unknown_values = True
        return self._submit(
            job_id,
            lambda: self.client.load_table_from_uri(
                list(files), self.table_id(table), job_id=job_id, job_config=config, **self._options
            ),
        )

    def _appending(self, schema: Sequence[Any], labels: Mapping[str, str]) -> bigquery.LoadJobConfig:
        """The settings of a load job that appends Parquet to an existing table."""
        config = bigquery.LoadJobConfig(
            source_format=bigquery.SourceFormat.PARQUET,
            write_disposition=bigquery.WriteDisposition.WRITE_APPEND,
            create_disposition=bigquery.CreateDisposition.CREATE_NEVER,
            decimal_target_types=["NUMERIC", "BIGNUMERIC"],
            labels=dict(labels),
        )
        config.parquet_options = bigquery.ParquetOptions.from_api_repr({"enableListInference": True})
        # Given a schema, the emulator takes BYTES in Parquet for base64; the table's own schema does as well there.
        if not (self.connection.endpoint and _has_bytes(schema)):
            config.schema = [field.to_api_repr() for field in schema]
        return config

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
        """Asks until the job is done or the time is up, at first often: most jobs are short."""
        until, pause = time.monotonic() + seconds, 0.02
        while job.state != "DONE" and time.monotonic() < until:
            time.sleep(pause)
            pause = min(pause * 1.5, 5)
            job.reload(**self._options)
        return bool(job.state == "DONE")


def _has_bytes(fields: Sequence[Any]) -> bool:
    return any(field.field_type == "BYTES" or _has_bytes(field.fields) for field in fields)


def label(text: str) -> str:
    """Text as a label's value: lower case letters, digits, ``_`` and ``-``, at most 63. A text with capitals,
    or a longer one, ends in a hash, so that two texts stay different."""
    found = re.sub(r"[^a-z0-9_-]", "_", text.lower())
    if text == text.lower() and len(text) <= _LONGEST_LABEL:
        return found
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{found[: _LONGEST_LABEL - 13]}_{mark}"


def _query_config(parameters: Sequence[_Parameter]) -> bigquery.QueryJobConfig:
    """The settings of every query: in UTC, since the project may have another default time zone."""
    utc = bigquery.ConnectionProperty("time_zone", "UTC")
    return bigquery.QueryJobConfig(query_parameters=list(parameters), connection_properties=[utc])


def _parameters(values: Mapping[str, Value]) -> list[bigquery.ScalarQueryParameter]:
    kinds = {int: "INT64", float: "FLOAT64", str: "STRING", type(None): "STRING"}
    return [bigquery.ScalarQueryParameter(name, kinds[type(value)], value) for name, value in values.items()]
