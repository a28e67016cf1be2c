"""The `control` part of a pipeline file: the topic on which the pipeline publishes commit events."""

from __future__ import annotations

from pydantic import Field

from jobs.spec.base import Spec


class Control(Spec):
    """The control topic, in the source's Kafka cluster. Pipelines may share one: events name their pipeline."""

    enabled: bool = Field(True, description="false: no events; the consumer group still follows the tables")
    topic: str = Field(
        "batchmerge_control",
        pattern=r"^[A-Za-z0-9._-]{1,249}$",
        description="name of the topic",
        examples=["batchmerge_control"],
    )
    create: bool = Field(True, description="create the topic when it is missing: one partition, the cluster's defaults")
    group_prefix: str = Field(
        "batchmerge-",
        pattern=r"^[A-Za-z0-9._-]{0,150}$",
        description="how the names of consumer groups and transactional ids begin, before the pipeline's name. "
        "After a change the events and dead letters of the last seven days are sent again (events with "
        "the same ids)",
        examples=["analytics."],
    )
    # Kafka's client waits no longer for one request.
    time_limit_seconds: int = Field(
        15,
        gt=0,
        le=300,
        description="data waits at most this long for its events; the next run publishes what is missing",
    )

    def group(self, pipeline: str, role: str = "") -> str:
        """The consumer group of a pipeline, or of one of its roles, whose `transactional.id` it is too."""
        return self.group_prefix + "/".join(filter(None, (pipeline, role)))
