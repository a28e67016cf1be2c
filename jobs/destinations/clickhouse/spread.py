"""Which rows of a table over several endpoints belong on one of them: found before anything is sent.

The server itself is asked, with the columns that decide and nothing else: so any of its hash functions will do, and a
key stays where it always was.
"""

from __future__ import annotations

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
        if not rows.num_rows:
            return rows
        asked = rows.select([*self.columns, NUMBER])
        found = retried(lambda: self.server.select_with(self.sql, asked, self.structure))
        return rows.filter(pa.array(np.isin(rows[NUMBER].to_numpy(), found[NUMBER].to_numpy())))

    def own_dead_letters(self, dead_letters: pa.Table) -> pa.Table:
        """Of rows that were refused before they had a place, those that are kept here: each on one endpoint."""
        places = dead_letters["partition"].to_numpy() + dead_letters["offset"].to_numpy()
        return dead_letters.filter(pa.array(places % self.endpoints == self.endpoint))
