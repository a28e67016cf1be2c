"""Reads a destination table's rows by its own system: to count them, or for Spark's tasks to compare them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.destinations.row_values import RowValues
from sql import Dialect, render

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


EXPIRY = "its own expiry removes old rows"


class TableReader(ABC):
    """Reads a table for `verify` and for checks after a merge.

    A system with SQL implements `answers`, `present` and these templates in its dialect; the rest follows. A system
    that Spark's workers can reach also implements `rows`.

        ===================  =======================================================  =================================
        template             arguments, beside ``table`` and what the kind adds       result
        ===================  =======================================================  =================================
        ``count_rows``                                                                ``rows``
        ``duplicate_keys``   ``keys``: names of the key columns                       ``duplicates``: keys with more
                                                                                      than one row; null equals null
        ``some_rows``        ``columns``: names; ``limit``: number of random rows,    these columns
                             0 for all
        ===================  =======================================================  =================================

    Attributes:
        values: the columns of the rows, and how they are compared.
    """

    def __init__(self, values: RowValues, dialect: Dialect, table: Sequence[str], **arguments: object) -> None:
        """
        Args:
            table: its path. arguments: further arguments of the templates.
        """
        self.values = values
        self._dialect, self._arguments = dialect, {"table": table, **arguments}

    @abstractmethod
    def answers(self, text: str) -> list[pa.Table]:
        """The results of a query, one from each server that has a part of the table."""

    def text(self, template: str, **arguments: object) -> str:
        return render(self._dialect, template, **self._arguments, **arguments)

    def ask(self, template: str, **arguments: object) -> list[pa.Table]:
        return self.answers(self.text(template, **arguments))

    @abstractmethod
    def present(self) -> list[str]:
        """Names of the columns that the table really has, except those that the kind adds for itself."""

    def rows_are_records(self) -> bool:
        """Whether a row without a unique key is one record's, with its coordinates and values."""
        return True

    def reasons_to_lack(self) -> Iterator[str]:
        """Why the table, as it is, may have fewer rows than it got: its system joins rows, or removes old ones."""
        yield from ()

    def count(self) -> int:
        return int(sum(table["rows"][0].as_py() for table in self.ask("count_rows")))

    def known_count(self) -> int | str | None:
        """The number of rows, if it costs next to nothing: from the system's metadata, or counted.

        Returns:
            A sentence if the table is too large to be counted at every merge; None if nothing is known.
        """
        return self.count()

    def duplicate_keys(self) -> int | None:
        """The number of keys with more than one row; None if every merge checks the keys that it touched."""
        keys = [c.name for c in self.values.columns if c.is_key]
        return int(sum(table["duplicates"][0].as_py() for table in self.ask("duplicate_keys", keys=keys)))

    @contextmanager
    def rows(self, spark: SparkSession, limit: int) -> Iterator[DataFrame]:
        """All rows, or about `limit` random ones, in the form of `RowValues.as_read`; valid inside the `with` block.

        This default reads them into this process's memory. If Spark's workers can reach the system, they read instead
        (`jobs.destinations.shares`).
        """
        names = [c.name for c in self.values.columns]
        found = self.ask("some_rows", columns=names, limit=limit)
        yield spark.createDataFrame(pa.concat_tables(map(self.values.as_read, found)))

    def rows_of(
        self, spark: SparkSession, keys: DataFrame, columns: Sequence[str], before: Sequence[int], least: int
    ) -> tuple[DataFrame, int] | None:
        """The rows of a few keys in an earlier state of the table; only of kinds that can (`Capabilities.finds_rows`).

        Args:
            keys: the key columns, by their names in the table.
            columns: further columns to read; null if the table did not have them then.
            before: batch numbers; the table is read as it was before the first of them for which such a state is known.
            least: the state must have merged this batch.

        Returns:
            The rows, and the newest batch that the state has merged; None if no such state is known any more, or if
            the table began later than the landed batches, so that rows may lack what was there before.
        """
        raise NotImplementedError
