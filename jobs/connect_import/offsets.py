"""The offsets at which the connector stopped and the pipeline begins, so that nothing is lost or written twice.

The connector must have been stopped: then its consumer group has no members, and has committed what was written.

The consumer group's offsets are what the sink has written. Some sinks keep other offsets, which their kind reads
(`jobs.connect_import.sink`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jobs.connect_import import connect
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.sink import Offsets, sink_of
from resources.errors import Unavailable
from resources.kafka import KafkaCluster
from resources.kafka_groups import group_offsets
from resources.topic_partition import TopicPartition


def committed(cluster: KafkaCluster, configuration: Configuration, partitions: Iterable[TopicPartition]) -> Offsets:
    """The next offset of each partition by the connector's group; without one, the offset where the sink would begin.

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
    if (own := sink_of(configuration).group(configuration)) != group:
        found |= group_offsets(cluster, own, wanted)
    missing = [p for p in wanted if p not in found]
    at_end = configuration.text("consumer.override.auto.offset.reset", "earliest") == "latest"
    first = cluster.stable_offsets(missing) if at_end else cluster.first_offsets(missing)
    return {**found, **first}


def start(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, dict[int, int]]]:
    """`source.start` of the pipeline file."""
    by_topic: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[partition] = offset
    return {"offsets": by_topic}
