"""Reading the side table of a ClickHouse table: landed rows that it could not take (`dead_letters` writes them)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.dead_letters.dead_letter import DeadLetter, DeadLetterGroup
from resources.clickhouse import ClickHouseServer
from sql import render

_KIND = "Unfit"


def side_table_letters(
    server: ClickHouseServer, table: Sequence[str], stage: str, most: int, values: bool
) -> Iterator[DeadLetter]:
    """At most so many of one endpoint; `stage` is the destination's name."""
    for row in server.rows(render("clickhouse", "dead_letters_rows", table=table, values=values), {"most": most}):
        said = f"{row['reason']} ({row['declared']} to {row['wanted']})" if row["wanted"] else row["reason"]
        yield DeadLetter(
            table=".".join(table),
            topic=row["topic"],
            partition=row["partition"],
            offset=row["offset"],
            timestamp=None,
            batch=row["batch"],
            i=None,
            stage=stage,
            kind=_KIND,
            message=f"{row['column']}: {said}" if row["column"] else said,
            value=row["row"].encode() if values else None,
        )


def side_table_groups(server: ClickHouseServer, table: Sequence[str], stage: str) -> Iterator[DeadLetterGroup]:
    """Those of one endpoint, by column and reason."""
    for row in server.rows(render("clickhouse", "dead_letters_summary", table=table)):
        yield DeadLetterGroup(
            table=".".join(table),
            stage=stage,
            kind=_KIND,
            records=row["records"],
            first=row["first"],
            message=f"{row['column']}: {row['reason']}" if row["column"] else row["reason"],
        )
