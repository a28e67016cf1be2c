"""The layout of a ClickHouse table that exists, compared with what the pipeline file says."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobs.destinations.clickhouse.engines import replication
from jobs.destinations.clickhouse.expressions import sorted_by
from jobs.destinations.clickhouse.present_table import describe
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.layout_differences import differences
from resources.clickhouse import ClickHouseServer
from sql import render

_PARTITIONS, _TTL = " PARTITION BY ", " TTL "


def layout_differences(server: ClickHouseServer, table: ClickHouseTable) -> Iterator[str]:
    """Options of the file that the table does not have (`differences`)."""
    declared = {
        "engine": _not_replicated(table.engine.partition("(")[0]) if table.engine else None,
        "order_by": table.order_by,
        **(_spelled(server, table) if table.partition_by or table.ttl else {}),
        **{f"settings.{name}": str(value) for name, value in table.settings.items()},
    }

    def present() -> dict[str, object] | None:
        found = describe(server, table.path)
        if found is None:
            return None
        clauses = _clauses(found.engine_full)
        settings = dict(re.findall(r"(\w+) = '?([^',]*)'?", clauses["settings"]))
        return {
            "engine": _not_replicated(found.engine),
            "order_by": sorted_by(found.sorting_key),
            **clauses,
            **{f"settings.{name}": settings.get(name) for name in table.settings},
        }

    return differences(declared, present)


def _not_replicated(engine: str) -> str:
    """The engine's name without its replication: ClickHouse Cloud makes a SharedMergeTree of each MergeTree."""
    return engine.removeprefix(replication(engine))


def _spelled(server: ClickHouseServer, table: ClickHouseTable) -> dict[str, str]:
    """The expressions of the file in the server's spelling."""
    by = f"{_PARTITIONS}{table.partition_by}" if table.partition_by else ""
    ttl = f"{_TTL}{table.ttl}" if table.ttl else ""
    statement = f"CREATE TABLE t (c Int8) ENGINE = MergeTree{by} ORDER BY tuple(){ttl}"
    (row,) = server.rows(render("clickhouse", "statement_format"), {"statement": statement})
    return _clauses(row["formatted"])


def _clauses(text: str) -> dict[str, str]:
    """`partition_by`, `ttl` and `settings` of a table's definition, which names its clauses in this order."""
    rest, _, settings = text.partition(" SETTINGS ")
    rest, _, ttl = rest.partition(_TTL)
    by = re.search(f"{_PARTITIONS}(.*?) (PRIMARY KEY|ORDER BY) ", f"{rest} ORDER BY ")
    return {"partition_by": by[1] if by else "", "ttl": ttl, "settings": settings}
