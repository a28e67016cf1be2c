"""Where the connector stopped: offsets at which the pipeline begins, so that nothing is lost and nothing comes twice.

The connector must have been stopped: its consumer group has no members then, and has committed what it had written.

- The consumer group's offsets are what the sink says it has written.
- Iceberg sinks write files first and commit them to the tables later. Data that is announced in the control topic, but
  in no snapshot (`kafka.connect.offsets.<control topic>.<group>`, offsets of the control topic), would be lost.
- The ClickHouse sink with `exactlyOnce` keeps its state in a KeeperMap table: after AFTER_PROCESSING the next offset is
  the one after it, whatever the group says; under BEFORE_PROCESSING nobody knows whether the insert happened.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

from jobs.connect_import import clickhouse, connect, iceberg
from jobs.connect_import.configuration import Configuration
from jobs.iceberg.history import ancestors
from resources.clickhouse import ClickHouseServer
from resources.errors import ConfigurationError, SourceError, TopicMissing, Unavailable
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_members, group_offsets
from resources.topic_partition import TopicPartition
from resources.topic_reading import read_to_end
from sql import render

Offsets = dict[TopicPartition, int]

_MAGIC = b"aVR\x01"
# Event types of the control topic: https://github.com/apache/iceberg kafka-connect-events, PayloadType.
_DATA_WRITTEN = 1
_READING_LIMIT = 300.0


@dataclass(frozen=True)
class KeeperRow:
    """One row of the ClickHouse sink's state."""

    key: str
    last: int
    state: str


@dataclass(frozen=True)
class Written:
    """Files that a worker of an Iceberg sink has announced: where in the control topic, and for which table."""

    partition: int
    offset: int
    table: str


def committed(cluster: KafkaCluster, configuration: Configuration, partitions: Iterable[TopicPartition]) -> Offsets:
    """The next offset of each partition as the connector's group has it; without one, where the sink would begin.

    Raises:
        Unavailable: the connector is still running.
    """
    group = connect.group(configuration)
    is_iceberg = configuration.text("connector.class") in (iceberg.TABULAR, iceberg.APACHE)
    members = group_members(cluster, group)
    if members:
        raise Unavailable(
            f"the connector is still running: its consumer group has {members} members",
            where=f"consumer group {group}",
            remedy="stop it (PUT /connectors/<name>/stop), wait until it has committed, then import again",
        )
    wanted = list(partitions)
    found = group_offsets(cluster, group, wanted)
    if is_iceberg and (own := iceberg.group(configuration)) != group:
        found |= group_offsets(cluster, own, wanted)
    missing = [p for p in wanted if p not in found]
    at_end = configuration.text("consumer.override.auto.offset.reset", "earliest") == "latest"
    first = cluster.stable_offsets(missing) if at_end else cluster.first_offsets(missing)
    return {**found, **first}


def after_keeper_state(offsets: Mapping[TopicPartition, int], rows: Iterable[KeeperRow], where: str) -> Offsets:
    """The offsets after what the ClickHouse sink's state says; partitions without a row stay.

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
                f"the sink has begun a batch of {tp} that ends at offset {row.last}, and nobody knows "
                "whether it was inserted",
                where=where,
                remedy="start the connector again until it has finished the batch, stop it, then import again",
            )
        found[tp] = row.last + 1
    return found


def keeper_rows(server: ClickHouseServer, table: str) -> list[KeeperRow]:
    rows = server.rows(render("clickhouse", "connect_state", table=tuple(table.split("."))))
    return [KeeperRow(row["key"], int(row["maxOffset"]), row["state"]) for row in rows]


def uncommitted(written: Iterable[Written], committed_to: Mapping[str, Mapping[int, int]]) -> list[Written]:
    """Announced files that their table's snapshots do not know of.

    Args:
        committed_to: per table the control topic's next offset per partition; empty for a table without a commit.
    """
    return [w for w in written if w.offset >= committed_to.get(w.table, {}).get(w.partition, 0)]


def check_all_in_tables(cluster: KafkaCluster, catalog: IcebergCatalog, configuration: Configuration) -> None:
    """Everything that an Iceberg sink has written is in a snapshot of its table.

    Raises:
        SourceError: it is not; beginning at the group's offsets would lose it.
    """
    topic, group = iceberg.control_topic(configuration), iceberg.group(configuration)
    try:
        events = read_to_end(cluster, topic, _READING_LIMIT)
    except TopicMissing:
        events = []
    written = [w for e in events for w in announced(e.value, e.partition, e.offset, group)]
    tables = {w.table for w in written}
    known = {t: snapshot_offsets(catalog, t, iceberg.branch(configuration, t), topic, group) for t in tables}
    left = uncommitted(written, known)
    if left:
        raise SourceError(
            f"{len(left)} of the sink's events tell of files that are in no snapshot yet, first at offset "
            f"{left[0].offset} of {topic}-{left[0].partition} for {left[0].table}",
            where=f"consumer group {group}",
            remedy="start the connector again until its next commit is complete, stop it, then import again",
        )


def snapshot_offsets(catalog: IcebergCatalog, table: str, branch: str, topic: str, group: str) -> dict[int, int]:
    """The control topic's offsets in the newest snapshot that has them."""
    found = catalog.load(table)
    name = f"kafka.connect.offsets.{topic}.{group}"
    for snapshot in ancestors(found.metadata, branch) if found else ():
        text = snapshot.summary.additional_properties.get(name) if snapshot.summary else None
        if text:
            return {int(p): int(o) for p, o in json.loads(text).items()}
    return {}


def announced(message: bytes, partition: int, offset: int, group: str) -> Iterator[Written]:
    """The files that this event of the sink tells of, if it is this group's and does; both sinks' formats."""
    event = _decode(message)
    if event is None or event.get("type") != _DATA_WRITTEN or event.get("group_id") != group:
        return
    payload = event["payload"]
    if not payload.get("data_files") and not payload.get("delete_files"):
        return
    name = payload.get("table_name") or payload.get("table_reference") or {}
    yield Written(partition, offset, ".".join([*(name.get("namespace") or []), name.get("name") or ""]))


def _decode(message: bytes) -> dict[str, Any] | None:
    """An event as Iceberg's `AvroEncoderUtil` writes it: mark, length of the schema, schema, record."""
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


def start(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, dict[int, int]]]:
    """`source.start` of the pipeline file."""
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[partition] = offset
    return {"offsets": by_topic}


def keeper_state_counts(configuration: Configuration) -> bool:
    """The ClickHouse sink runs with `exactlyOnce`, so its state is what counts."""
    return configuration.text("connector.class") == clickhouse.CLASS and configuration.flag("exactlyOnce")
