"""A BigQuery connection: Google's client, its datasets and tables, and its errors in our tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeVar

from google.api_core import exceptions as google_errors
from google.api_core.client_options import ClientOptions
from google.api_core.retry import Retry
from google.cloud import bigquery
from google.cloud.bigquery.retry import DEFAULT_RETRY

from resources.bigquery_credentials import credentials_of
from resources.bigquery_errors import bigquery_errors
from resources.connections import BigQueryConnection
from resources.errors import ConfigurationError

T = TypeVar("T")


@dataclass(frozen=True)
class BigQueryTables:
    """The datasets and tables of a BigQuery connection, by its name in the connections file."""

    name: str
    connection: BigQueryConnection

    def __reduce__(self) -> tuple[type[Self], tuple[str, BigQueryConnection]]:
        """Without the client, which each worker of Spark opens for itself."""
        return type(self), (self.name, self.connection)

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
