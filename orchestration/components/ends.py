"""How far tables are behind Kafka, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from jobs.batch import CommittedState
from jobs.members import Members
from jobs.offsets import Offsets
from jobs.pipeline import Pipeline
from jobs.spec.members import Member
from orchestration.components import metadata
from resources.errors import TransientError


@dataclass(frozen=True)
class Ends:
    """The last stable offsets that Kafka had at this time; None where it did not answer: no failure of a table."""

    at: datetime
    offsets: Offsets | None

    @classmethod
    def now(cls, pipeline: Pipeline) -> Ends:
        try:
            return cls(datetime.now(UTC), pipeline.topic_state().stable)
        except TransientError:
            return cls(datetime.now(UTC), None)

    def lag(self, state: CommittedState | None) -> int | None:
        """Records that Kafka has and the table has not."""
        return None if self.offsets is None else metadata.lag_behind(self.offsets, state)


@dataclass(frozen=True)
class EndsByTopic:
    """The same for the topics, or names, of many tables, asked for at once."""

    at: datetime
    by_topic: Mapping[str, Offsets]

    @classmethod
    def now(cls, members: Members, merged: Sequence[Member]) -> EndsByTopic:
        """Of those that are merged now, and where their age is checked (`freshness`) of all."""
        asked = members.all_known() if members.spec.freshness else merged
        return cls(datetime.now(UTC), members.ends(asked))

    def of(self, topic: str) -> Ends:
        return Ends(self.at, self.by_topic.get(topic))
