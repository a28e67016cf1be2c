"""Files that an Iceberg sink has written and not committed yet: a pipeline that continued from there would lose them.

The sinks announce files in their control topic, and commit them to the tables later. A snapshot's property
`kafka.connect.offsets.<control topic>.<group>` has the offsets of the control topic up to which files are committed.
After a commit to all tables the sink commits these offsets to its group `<group>-coord` as well: that mark lasts where
the table was dropped, or maintenance has removed the snapshot.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

from jobs.iceberg.history import ancestors, summary_of
from resources.errors import ConfigurationError, SourceError, TopicMissing
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_offsets
from resources.topic_partition import TopicPartition
from resources.topic_reading import read_to_end

_MAGIC = b"aVR\x01"
# Event types of the control topic: https://github.com/apache/iceberg kafka-connect-events, PayloadType.
_DATA_WRITTEN = 1


@dataclass(frozen=True)
class Written:
    """Files that a sink's worker has announced: the event's position in the control topic, and the table."""

    partition: int
    offset: int
    table: str


def uncommitted(written: Iterable[Written], committed_to: Mapping[str, Mapping[int, int]]) -> list[Written]:
    """Announced files that are not committed.

    Args:
        committed_to: for each table the control topic's next offset per partition; empty for a table without a commit.
    """
    return [w for w in written if w.offset >= committed_to.get(w.table, {}).get(w.partition, 0)]


def check_all_in_tables(
    cluster: KafkaCluster, catalog: IcebergCatalog, topic: str, group: str, branch_of: Callable[[str], str]
) -> None:
    """Requires that everything that a sink has written is in a snapshot of its table.

    Args:
        topic: the control topic.
        group: the consumer group of the sink's offsets.
        branch_of: the branch of a table.

    Raises:
        SourceError: something is not; a pipeline that starts at the group's offsets would lose it.
    """
    try:
        events = read_to_end(cluster, topic).to_pylist()
    except TopicMissing:
        events = []
    written = [w for e in events for w in announced(e["value"] or b"", e["partition"], e["offset"], group)]
    tables = {w.table for w in written}
    known = {t: snapshot_offsets(catalog, t, branch_of(t), topic, group) for t in tables}
    left = uncommitted(written, known)
    asked = {TopicPartition(topic, w.partition) for w in left}
    complete = {tp.partition: offset for tp, offset in group_offsets(cluster, f"{group}-coord", asked).items()}
    left = uncommitted(left, dict.fromkeys(tables, complete))
    if left:
        raise SourceError(
            f"{len(left)} of the sink's events tell of files that are in no snapshot yet, first at offset "
            f"{left[0].offset} of {topic}-{left[0].partition} for {left[0].table}",
            where=f"consumer group {group}",
            remedy="start the connector again until its next commit is complete, stop it, then import again",
        )


def snapshot_offsets(catalog: IcebergCatalog, table: str, branch: str, topic: str, group: str) -> dict[int, int]:
    """The control topic's offsets, from the newest snapshot that has them."""
    found = catalog.load(table)
    name = f"kafka.connect.offsets.{topic}.{group}"
    for snapshot in ancestors(found.metadata, branch) if found else ():
        if text := summary_of(snapshot).get(name):
            return {int(p): int(o) for p, o in json.loads(text).items()}
    return {}


def announced(message: bytes, partition: int, offset: int, group: str) -> Iterator[Written]:
    """The files that this event announces, if it is of this group and announces any; in both sinks' formats."""
    event = _decode(message)
    if event is None or event.get("type") != _DATA_WRITTEN or event.get("group_id") != group:
        return
    payload = event["payload"]
    if not payload.get("data_files") and not payload.get("delete_files"):
        return
    name = payload.get("table_name") or payload.get("table_reference") or {}
    yield Written(partition, offset, ".".join([*(name.get("namespace") or []), name.get("name") or ""]))


def _decode(message: bytes) -> dict[str, Any] | None:
    """Decodes an event of Iceberg's `AvroEncoderUtil`: magic bytes, length of the schema, schema, record."""
    if message[:4] != _MAGIC:
        return None
    (length,) = struct.unpack(">i", message[4:8])
    try:
        schema = json.loads(message[8 : 8 + length])
        found = fastavro.schemaless_reader(io.BytesIO(message[8 + length :]), schema, None)
    except (ValueError, EOFError, KeyError, IndexError) as problem:
        raise ConfigurationError(
            f"an event of the control topic cannot be read ({type(problem).__name__})",
            where="control topic",
            remedy="check the topic's name in the connector's configuration",
        ) from None
    return found if isinstance(found, dict) else None
