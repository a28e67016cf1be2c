"""News of what is in the tables: the consumer group's offsets. Informational, repeatable, never read back as truth."""

from __future__ import annotations

import logging

from jobs import offsets
from jobs.failpoints import reached
from jobs.pipeline import Pipeline
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge")


def publish_news(pipeline: Pipeline) -> None:
    """Sets the consumer group to the minimum over all tables, so that every lag exporter shows what is really there.

    A table that cannot be read now keeps the group where it is; the next run repeats it.
    """
    states = []
    for destination in pipeline.destinations():
        try:
            state = destination.committed()
        except BatchmergeError as problem:
            _LOG.warning("the consumer group waits for %s: %s", destination.name, problem)
            return
        if state is None:
            return
        states.append(state.offsets)
    reached_by_all = offsets.minimum(states)
    pipeline.kafka.commit_group(pipeline.group, {(tp.topic, tp.partition): o for tp, o in reached_by_all.items()})
    reached("news.group")
