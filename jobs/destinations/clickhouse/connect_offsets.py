"""The offsets that the ClickHouse sink with `exactlyOnce` keeps in a KeeperMap table, instead of its consumer group.

With AFTER_PROCESSING the sink continues after the range; with BEFORE_PROCESSING it is not known whether the insert
happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jobs.connect_import.sink import Offsets
from resources.clickhouse import ClickHouseServer
from resources.errors import SourceError
from resources.topic_partition import TopicPartition
from sql import render


@dataclass(frozen=True)
class KeeperRow:
    """One row of the ClickHouse sink's state."""

    key: str
    last: int
    state: str


def after_keeper_state(offsets: Mapping[TopicPartition, int], rows: Iterable[KeeperRow], where: str) -> Offsets:
    """The next offsets by the sink's state; unchanged for partitions without a row.

    Raises:
        SourceError: a batch was begun and not finished.
    """
    by_key = {row.key: row for row in rows}
    found = dict(offsets)
    for tp in offsets:
        row = by_key.get(str(tp))
        if row is None or row.state == "NONE":
            continue
        if row.state != "AFTER_PROCESSING":
            raise SourceError(
                f"the sink has begun a batch of {tp} that ends at offset {row.last}, and it is not "
                "known whether it was inserted",
                where=where,
                remedy="start the connector again until it has finished the batch, stop it, then import again",
            )
        found[tp] = row.last + 1
    return found


def keeper_rows(server: ClickHouseServer, table: str) -> list[KeeperRow]:
    rows = server.rows(render("clickhouse", "connect_state", table=tuple(table.split("."))))
    return [KeeperRow(row["key"], int(row["maxOffset"]), row["state"]) for row in rows]
