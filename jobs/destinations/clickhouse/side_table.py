"""The side table of a ClickHouse table on one endpoint: landed rows that it refuses (`insertion` writes them)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from jobs.dead_letters.dead_letter import DeadLetter, DeadLetterGroup
from jobs.destinations.clickhouse import tables
from jobs.destinations.refused_rows import as_group, as_letter
from resources.clickhouse import ClickHouseServer, Row, retried
from sql import render


@dataclass(frozen=True)
class SideTable:
    """`<table>__dead_letters`. Where no run has made it yet there are no letters."""

    server: ClickHouseServer
    path: tuple[str, str]

    def letters(self, stage: str, most: int, values: bool) -> Iterator[DeadLetter]:
        """At most so many; `stage` is the destination's name."""
        for row in self._rows("side_table_rows", {"most": most}, values=values):
            yield as_letter(row, ".".join(self.path), stage)

    def groups(self, stage: str) -> Iterator[DeadLetterGroup]:
        for row in self._rows("side_table_groups"):
            yield as_group(row, ".".join(self.path), stage)

    def by_batch(self) -> Mapping[int, int]:
        return {int(row["batch"]): int(row["records"]) for row in self._rows("side_table_batches")}

    def places(self) -> pa.Table | None:
        """``topic, partition, offset, batch`` of the rows that are refused."""
        if not self._exists():
            return None
        return self.server.arrow(render("clickhouse", "side_table_places", table=self.path))

    def attempts(self, first: int, last: int) -> Sequence[str]:
        """Who has written letters of these batches so far."""
        given = {"first": first, "last": last}
        return [str(row["attempt"]) for row in self._rows("side_table_attempts", given)]

    def forget(self, first: int, last: int, attempts: Sequence[str], by: str, newest_only: bool = False) -> None:
        """Takes away what these attempts have written of these batches: `by` another it was judged again since.

        Args:
            newest_only: that one has judged the newest change of each key only. Where it has refused that, the key's
                other letters stay: those changes are still not in the table.
        """
        if not attempts:
            return
        sql = render("clickhouse", "side_table_forget", table=self.path, newest_only=newest_only)
        given = {"first": first, "last": last, "attempts": list(attempts), **({"by": by} if newest_only else {})}
        retried(lambda: self.server.execute(sql, given, {"lightweight_deletes_sync": 2}))

    def _rows(self, template: str, parameters: Mapping[str, object] | None = None, **said: object) -> list[Row]:
        if not self._exists():
            return []
        return self.server.rows(render("clickhouse", template, table=self.path, **said), parameters)

    def _exists(self) -> bool:
        return tables.describe(self.server, self.path) is not None
