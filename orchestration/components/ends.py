"""How far tables are behind Kafka, to be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from jobs.batch import CommittedState
from jobs.behind import lag_behind
from jobs.members.members import Members
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from jobs.spec.members import Member
from resources.errors import TransientError


@dataclass(frozen=True)
class Ends:
    """What Kafka has at this time; None: Kafka did not answer, which is no failure of a table."""

    at: datetime
    topics: TopicState | None

    @classmethod
    def now(cls, pipeline: Pipeline) -> Ends:
        topics = None
        with suppress(TransientError):
            topics = pipeline.topic_state()
        return cls(datetime.now(UTC), topics)

    def lag(self, state: CommittedState | None) -> int | None:
        """Records that Kafka has and the table has not."""
        return lag_behind(self.topics.stable, state, self.topics.first) if self.topics else None


@dataclass(frozen=True)
class EndsByMember:
    """As `Ends` for many tables, from one query; by the keys of members."""

    at: datetime
    by_key: Mapping[str, TopicState]

    @classmethod
    def now(cls, members: Members, merged: Sequence[Member]) -> EndsByMember:
        """The ends for the members that are merged now; with `freshness` for all, since their age is checked."""
        asked = members.all_known() if members.spec.freshness else merged
        return cls(datetime.now(UTC), members.ends(asked))

    def of(self, key: str) -> Ends:
        return Ends(self.at, self.by_key.get(key))
