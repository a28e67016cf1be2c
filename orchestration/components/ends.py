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
from jobs.planning.plan import TopicState
from jobs.spec.members import Member
from resources.errors import TransientError


@dataclass(frozen=True)
class Ends:
    """Kafka's last stable offsets at this time; None: Kafka did not answer, which is no failure of a table."""

    at: datetime
    offsets: Offsets | None
    first: Offsets | None = None

    @classmethod
    def now(cls, pipeline: Pipeline) -> Ends:
        try:
            topics = pipeline.topic_state()
        except TransientError:
            return cls(datetime.now(UTC), None)
        return cls(datetime.now(UTC), topics.stable, topics.first)

    def lag(self, state: CommittedState | None) -> int | None:
        """Records that Kafka has and the table has not."""
        return None if self.offsets is None else lag_behind(self.offsets, state, self.first)


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
        found = self.by_key.get(key)
        return Ends(self.at, found.stable, found.first) if found else Ends(self.at, None)
