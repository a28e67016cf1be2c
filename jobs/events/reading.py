"""Reads control events, to start work when a table has a batch (as Dagster's sensor does)."""

from __future__ import annotations

import logging

from jobs.events.messages import Event, decode
from resources.kafka import KafkaCluster
from resources.topic_reading import read_messages

_LOG = logging.getLogger("batchmerge")
_MOST, _SECONDS = 500, 10.0


def read_events(cluster: KafkaCluster, topic: str, cursor: str | None) -> tuple[list[Event], str]:
    """Events of committed transactions after the cursor, in the topic's order, and the cursor after them.

    Returns at the end of the committed messages, after 500 messages or 10 seconds, whichever comes first; call again
    with the new cursor for more. An event may be repeated (a run that died, two tables at once), with the same id.
    Messages that are no events, and events of unknown types, are skipped.

    Args:
        cursor: None: from the first event that the topic still has. A topic that was recreated is read from its start.

    Raises:
        TopicMissing: there is no such topic (yet). Unavailable: Kafka does not answer.
    """
    found = read_messages(cluster, topic, cursor, _MOST, _SECONDS)
    events = []
    for message in found.messages:
        try:
            event = decode(message)
        except ValueError as problem:
            _LOG.warning("control topic %s: passed over a message: %s", topic, problem)
            continue
        if event:
            events.append(event)
    return events, found.cursor
