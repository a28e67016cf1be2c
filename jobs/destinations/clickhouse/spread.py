"""Which rows of a table over several endpoints belong on one of them, and which records another one has already: found
before anything is sent.

The server itself is asked, with the columns that decide and nothing else: so any of its hash functions will do, and a
key stays where it always was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from resources.clickhouse import ClickHouseServer, retried

# Numbers the rows of a chunk, as they were read.
NUMBER = "__number"


@dataclass(frozen=True)
class Spread:
    """The place of one endpoint among all; travels to the workers.

    Attributes:
        sql: gives the `NUMBER`s of the rows that belong here, of data with `columns` in `structure`.
        endpoint: from 0.
    """

    server: ClickHouseServer
    sql: str
    columns: tuple[str, ...]
    structure: str
    endpoint: int
    endpoints: int

    def own(self, rows: pa.Table) -> pa.Table:
        """The rows that belong here.

        Raises:
            TerminalError: a value cannot be converted to the column's type.
        """
        return rows.filter(pa.array(_found(self.server, self.sql, rows, self.columns, self.structure)))

    def own_dead_letters(self, dead_letters: pa.Table) -> pa.Table:
        """Of rows that were refused before they had a place, those that are kept here: each on one endpoint."""
        places = dead_letters["partition"].to_numpy() + dead_letters["offset"].to_numpy()
        return dead_letters.filter(pa.array(places % self.endpoints == self.endpoint))


@dataclass(frozen=True)
class Elsewhere:
    """The records that another endpoint has; travels to the workers.

    Attributes:
        sql: gives the `NUMBER`s of the rows whose record is there, of data with `columns` in `structure`.
    """

    server: ClickHouseServer
    sql: str
    columns: tuple[str, ...]
    structure: str

    def lacking(self, rows: pa.Table, parameters: Mapping[str, object]) -> pa.Table:
        """The rows whose record is not there; `parameters` say which records their chunk covers."""
        return rows.filter(pa.array(~_found(self.server, self.sql, rows, self.columns, self.structure, parameters)))


def _found(
    server: ClickHouseServer,
    sql: str,
    rows: pa.Table,
    columns: tuple[str, ...],
    structure: str,
    parameters: Mapping[str, object] | None = None,
) -> np.ndarray:
    """Of each row, whether the server gives its number."""
    if not rows.num_rows:
        return np.zeros(0, dtype=bool)
    asked = rows.select([*columns, NUMBER])
    found = retried(lambda: server.select_with(sql, asked, structure, parameters))
    return np.isin(rows[NUMBER].to_numpy(), found[NUMBER].to_numpy())
