"""Which rows of a table on several endpoints belong on this one, and which records another endpoint already has.

Decided before rows are sent: the server itself evaluates the hash, from the columns that it needs. So any of its hash
functions can be used, and a key is always on the same endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from resources.clickhouse import ClickHouseServer
from resources.clickhouse_errors import retried

# The number of a row in its chunk, in the order of reading.
NUMBER = "__bm_number"


@dataclass(frozen=True)
class Question:
    """A question about the rows of a chunk; travels to the workers.

    Attributes:
        sql: a query of data with `columns` in `structure`; for `holds` the one for the `NUMBER`s of the rows for which
            the answer is yes.
    """

    server: ClickHouseServer
    sql: str
    columns: tuple[str, ...]
    structure: str

    def ask(self, rows: pa.Table, parameters: Mapping[str, object] | None = None) -> pa.Table:
        """The query's result.

        Raises:
            TerminalError: a value cannot be converted to the column's type.
        """
        asked = rows.select(list(self.columns))
        return retried(lambda: self.server.select_with(self.sql, asked, self.structure, parameters))

    def holds(self, rows: pa.Table, parameters: Mapping[str, object] | None = None) -> np.ndarray:
        """The answer for each row; raises as `ask` does."""
        if not rows.num_rows:
            return np.zeros(0, dtype=bool)
        return np.isin(rows[NUMBER].to_numpy(), self.ask(rows, parameters)[NUMBER].to_numpy())


@dataclass(frozen=True)
class Spread:
    """Selects the rows of one endpoint; travels to the workers.

    Attributes:
        endpoint: from 0.
    """

    belongs_here: Question
    endpoint: int
    endpoints: int

    def own(self, rows: pa.Table) -> pa.Table:
        """The rows that belong here.

        Raises:
            TerminalError: a value cannot be converted to the column's type.
        """
        return rows.filter(pa.array(self.belongs_here.holds(rows)))

    def own_dead_letters(self, dead_letters: pa.Table) -> pa.Table:
        """The dead letters to keep on this endpoint: each is kept on one, although its row belongs to none."""
        places = dead_letters["partition"].to_numpy() + dead_letters["offset"].to_numpy()
        return dead_letters.filter(pa.array(places % self.endpoints == self.endpoint))
