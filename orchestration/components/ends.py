"""How far tables are behind Kafka, to be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from jobs.batch import CommittedState
from jobs.behind import lag_behind
from jobs.members.members import Members
from jobs.offsets import Offsets
from jobs.pipeline import Pipeline
from jobs.spec.members import Member
from resources.errors import TransientError


@dataclass(frozen=True)
class Ends:
    """Kafka's last stable offsets at this time; None: Kafka did not answer, which is no failure of a table."""

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
        return None if self.offsets is None else lag_behind(self.offsets, state)


@dataclass(frozen=True)
class EndsByTopic:
    """As `Ends` for many tables, from one query; by topic, or with `new_tables` by the name that records gave."""

    at: datetime
    by_topic: Mapping[str, Offsets]

    @classmethod
    def now(cls, members: Members, merged: Sequence[Member]) -> EndsByTopic:
        """The ends for the members that are merged now; with `freshness` for all, since their age is checked."""
        asked = members.all_known() if members.spec.freshness else merged
        return cls(datetime.now(UTC), members.ends(asked))

    def of(self, topic: str) -> Ends:
        return Ends(self.at, self.by_topic.get(topic))
