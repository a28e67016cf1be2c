"""The side table of a ClickHouse table on one endpoint (`insert_task` writes it)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.destinations.clickhouse import present_table
from jobs.destinations.side_table import Parameters, SideTable
from resources.clickhouse import ClickHouseServer
from resources.clickhouse_errors import retried
from sql import render


@dataclass(frozen=True)
class ClickHouseSideTable(SideTable):
    server: ClickHouseServer
    path: tuple[str, str]
    where: str

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def stage(self) -> str:
        return self.where

    def rows(self, template: str, given: Parameters, **said: object) -> Sequence[Mapping[str, object]]:
        if present_table.describe(self.server, self.path) is None:
            return []
        return self.server.rows(render("clickhouse", template, table=self.path, **said), given)

    def change(self, template: str, given: Parameters, **said: object) -> None:
        sql = render("clickhouse", template, table=self.path, **said)
        retried(lambda: self.server.execute(sql, given, {"lightweight_deletes_sync": 2}))
