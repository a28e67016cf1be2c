"""The offsets at which the connector stopped and the pipeline begins, so that nothing is lost or written twice.

The connector must have been stopped: then its consumer group has no members, and has committed what was written.

The consumer group's offsets are what the sink has written. Some sinks keep other offsets, which their kind reads
(`jobs.connect_import.sink`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.connect_import import connect
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.sink import sink_of
from jobs.offsets import Offsets
from resources.connections import Connections
from resources.errors import SourceError, Unavailable
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_offsets
from resources.topic_partition import TopicPartition


@dataclass(frozen=True)
class Stopped:
    """
    Attributes:
        next: the next offset of each partition.
        unknown: those of which the connector has committed none: they begin where the sink would.
        at_end: it would begin at their end (`auto.offset.reset`), not at their first record.
    """

    next: Offsets
    unknown: Sequence[TopicPartition] = ()
    at_end: bool = False

    def __str__(self) -> str:
        where = "their end" if self.at_end else "their first record"
        others = f", at {where}: {', '.join(map(str, self.unknown))}" if self.unknown else ""
        return f"{len(self.next) - len(self.unknown)} partitions{others}"


def stopped_at(
    cluster: KafkaCluster, configuration: Configuration, connections: Connections, partitions: Iterable[TopicPartition]
) -> Stopped:
    """Where the connector stopped, by its group and by the state that its sink keeps.

    Raises:
        Unavailable: the connector is still running.
        SourceError: nothing says where it stopped, or it has begun something that is not finished.
    """
    found = committed(cluster, configuration, partitions)
    known = sink_of(configuration).stopped_at(cluster, connections, found.next)
    found = replace(found, next=known, unknown=[p for p in found.unknown if known[p] == found.next[p]])
    if len(found.unknown) < len(found.next):
        return found
    first, ends = cluster.first_offsets(found.unknown), cluster.stable_offsets(found.unknown)
    if first == ends:  # there was nothing to commit
        return found
    raise SourceError(
        "the group has no offsets, so nothing says where the connector stopped: Kafka has forgotten them "
        "(`offsets.retention.minutes` after the stop, a week by default), or the connector had another name or cluster",
        where=f"consumer group {connect.group(configuration)}",
        remedy="start the connector until it commits, stop it, and import again; or import with --no-offsets, and "
        "write `source.start` yourself",
    )


def committed(cluster: KafkaCluster, configuration: Configuration, partitions: Iterable[TopicPartition]) -> Stopped:
    """Where the connector stopped by its group.

    Raises:
        Unavailable: the connector is still running.
    """
    group = connect.group(configuration)
    members = cluster.group_members(group)
    if members:
        raise Unavailable(
            f"the connector is still running: its consumer group has {members} members",
            where=f"consumer group {group}",
            remedy="stop it (PUT /connectors/<name>/stop), wait until it has committed, then import again",
        )
    wanted = list(partitions)
    found = group_offsets(cluster, group, wanted)
    if (own := sink_of(configuration).group()) != group:
        found |= group_offsets(cluster, own, wanted)
    missing = [p for p in wanted if p not in found]
    at_end = configuration.text("consumer.override.auto.offset.reset", "earliest") == "latest"
    first = cluster.stable_offsets(missing) if at_end else cluster.first_offsets(missing)
    return Stopped({**found, **first}, missing, at_end)


def start(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, dict[int, int]]]:
    """`source.start` of the pipeline file."""
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[partition] = offset
    return {"offsets": by_topic}
