"""A destination table's rows as its own system gives them: counted, or read by Spark's tasks to be compared."""

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


class TableReader(ABC):
    """Reads a table for `verify` and for checks after a merge.

    A system with SQL gives `answers`, `present` and these templates in its dialect; the rest follows. A system that
    Spark's workers reach gives `rows` besides.

        ===================  =======================================================  =================================
        template             arguments, beside ``table`` and what the kind adds       answer
        ===================  =======================================================  =================================
        ``count_rows``                                                                ``rows``
        ``duplicate_keys``   ``keys``: names of the key columns                       ``duplicates``: keys with more
                                                                                      than one row; null equals null
        ``some_rows``        ``columns``: names; ``limit``: so many rows at random,   these columns
                             0 for all
        ===================  =======================================================  =================================

    Attributes:
        values: the columns of its rows, and how they are compared.
    """

    def __init__(self, values: RowValues, dialect: Dialect, table: Sequence[str], **arguments: object) -> None:
        """
        Args:
            table: its path. arguments: what templates get besides.
        """
        self.values = values
        self._dialect, self._arguments = dialect, {"table": table, **arguments}

    @abstractmethod
    def answers(self, text: str) -> list[pa.Table]:
        """What a query of the table gives, one of each server that has a part of it."""

    def text(self, template: str, **arguments: object) -> str:
        return render(self._dialect, template, **self._arguments, **arguments)

    def ask(self, template: str, **arguments: object) -> list[pa.Table]:
        return self.answers(self.text(template, **arguments))

    @abstractmethod
    def present(self) -> list[str]:
        """Names of the columns that the table really has, but those that the kind adds for itself."""

    def count(self) -> int:
        return int(sum(table["rows"][0].as_py() for table in self.ask("count_rows")))

    def known_count(self) -> int | str | None:
        """Rows, where that costs next to nothing: as the system's metadata has them, or counted.

        Returns:
            A sentence where the table is too large to be counted at every merge; None where nothing is known.
        """
        return self.count()

    def duplicate_keys(self) -> int | None:
        """Keys with more than one row; None where every merge asks for those that it touched."""
        keys = [c.name for c in self.values.columns if c.is_key]
        return int(sum(table["duplicates"][0].as_py() for table in self.ask("duplicate_keys", keys=keys)))

    @contextmanager
    def rows(self, spark: SparkSession, limit: int) -> Iterator[DataFrame]:
        """All rows, or about `limit` picked at random, as `RowValues.as_read` shapes them; good inside of the block.

        Here this process reads them, and holds them in its memory. Where Spark's workers reach the system they do
        (`jobs.destinations.shares`).
        """
        names = [c.name for c in self.values.columns]
        found = self.ask("some_rows", columns=names, limit=limit)
        yield spark.createDataFrame(pa.concat_tables(map(self.values.as_read, found)))

    def rows_of(
        self, spark: SparkSession, keys: DataFrame, columns: Sequence[str], before: Sequence[int], least: int
    ) -> tuple[DataFrame, int] | None:
        """The rows of a few keys, as the table had them; only of kinds that find them (`Capabilities.finds_rows`).

        Args:
            keys: the key columns, by their names in the table. columns: what is wanted besides the key; one that the
                table had not got then is null.
            before: batches, of one of which the rows have nothing: the first of them for which there are such rows.
            least: the batch that they have at least.

        Returns:
            The rows, and the newest batch that they have; None where the table has no such state any more.
        """
        raise NotImplementedError
