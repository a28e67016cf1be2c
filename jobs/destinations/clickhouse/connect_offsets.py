"""The offsets that the ClickHouse sink with `exactlyOnce` keeps in a KeeperMap table, instead of its consumer group.

With AFTER_PROCESSING the sink continues after the range; with BEFORE_PROCESSING it is not known whether the insert
happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from jobs.offsets import Offsets
from resources.clickhouse import ClickHouseServer, Row
from resources.errors import SourceError
from resources.topic_partition import TopicPartition
from sql import render


def after_keeper_state(
    offsets: Mapping[TopicPartition, int],
    rows: Iterable[Row],
    where: str,
    key_of: Callable[[TopicPartition], str],
) -> Offsets:
    """The next offsets by the sink's state; unchanged for partitions without a row.

    Args:
        rows: `keeper_rows`. key_of: the key of a partition's row.

    Raises:
        SourceError: a batch was begun and not finished, or a row is that of several partitions.
    """
    by_key, keys = {row["key"]: row for row in rows}, {tp: key_of(tp) for tp in offsets}
    partitions = Counter(keys.values())
    found = dict(offsets)
    for tp, key in keys.items():
        row = by_key.get(key)
        if row is None or row["state"] == "NONE":
            continue
        if partitions[key] > 1:
            raise open_state(f"{', '.join(str(one) for one in keys if keys[one] == key)} have one row, {key}", where)
        if row["state"] != "AFTER_PROCESSING":
            raise SourceError(
                f"the sink has begun a batch of {tp} that ends at offset {row['last']}, and it is not "
                "known whether it was inserted",
                where=where,
                remedy="start the connector again until it has finished the batch, stop it, then import again",
            )
        found[tp] = row["last"] + 1
    return found


def open_state(why: str, where: str) -> SourceError:
    """The error for a connector whose state is not that of single partitions."""
    return SourceError(
        f"the sink's state does not say where it stopped: {why}",
        where=where,
        remedy="import with --no-offsets, and write `source.start` yourself",
    )


def keeper_rows(server: ClickHouseServer, table: str) -> list[Row]:
    """The rows of the sink's state; a dot in the table's name is a part of it, as in the sink."""
    return server.rows(render("clickhouse", "connect_state", table=table))
