"""The state of one table on one endpoint: a lease that carries the committed state, and a row per topic-partition.

Whoever holds the lease may insert; every insert asks for the owner again (the fence). The lease moves only by
compare-and-set, and what it says is the truth about which batches the table has.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from jobs.batch import Batch, CommittedState
from jobs.destinations.clickhouse.transitions import Handled, Phase, Span
from jobs.offsets import TopicPartition
from resources.clickhouse import NEWER_RUN
from resources.errors import Interrupted


@dataclass(frozen=True)
class Lease:
    """Who may insert, which batches are under way, and which is committed.

    A step is fixed here when it is begun, so that a retry is the same whatever was landed or changed in the file since.

    Attributes:
        change: unique to each write; what the next write compares with.
        epoch: goes up with every new owner.
        owner: token of the run that holds it; empty while nobody does.
        run_id: that run, as the orchestrator knows it.
        first_batch: the first batch of the step under way; 0 for none, and of a step that an older version has begun.
        batch: its last batch; 0 for none.
        commit_id: of its last batch.
        chunk_rows: how it is cut.
        step: its own id, which deduplication tokens begin with; empty where an older version has begun it.
        refill_until: records of batches up to this one may be there, inserted by another step; 0 for none.
        state: the committed state as JSON; empty before the first batch.
        endpoints: of the connection; rows are spread by their number and order.
        spread_by: the hash that rows are spread by; empty for one endpoint, and where an older version wrote the lease.
        table_id: UUID of the table that was last written.
    """

    change: str = ""
    epoch: int = 0
    owner: str = ""
    run_id: str = ""
    first_batch: int = 0
    batch: int = 0
    commit_id: str = ""
    chunk_rows: int = 0
    step: str = ""
    refill_until: int = 0
    state: str = ""
    endpoints: tuple[str, ...] = ()
    spread_by: str = ""
    table_id: str = ""

    @property
    def committed(self) -> CommittedState | None:
        return state_from_text(self.state) if self.state else None

    @property
    def left_behind(self) -> bool:
        """A step was begun and not finished."""
        return self.batch > 0

    def idle(self) -> Lease:
        """The same without a step under way."""
        return replace(self, first_batch=0, batch=0, commit_id="", chunk_rows=0, step="")

    @property
    def token(self) -> str:
        """What the deduplication tokens of the step under way begin with."""
        return self.step or self.commit_id


def require_owner(held: Lease, now: Lease | None, where: str) -> None:
    """Refuses to go on where the lease is another run's by now.

    Raises:
        Interrupted: a newer owner has taken the table over.
    """
    if now is None or now.owner != held.owner:
        raise Interrupted("another run has taken this table over", where=where, remedy=NEWER_RUN)


_PACKED = "zlib:"
# ClickHouse takes parameters of up to 128 KB, and thousands of partitions need more.
_PACK_FROM = 32_000


def state_text(state: CommittedState) -> str:
    """A committed state as the lease carries it: JSON that people can read, packed where it is long."""
    text = json.dumps(state.to_properties(), sort_keys=True)
    return text if len(text) < _PACK_FROM else _PACKED + base64.b64encode(zlib.compress(text.encode())).decode()


def state_from_text(text: str) -> CommittedState:
    """The inverse of `state_text`."""
    if text.startswith(_PACKED):
        text = zlib.decompress(base64.b64decode(text.removeprefix(_PACKED))).decode()
    return CommittedState.from_properties(json.loads(text))


@dataclass(frozen=True)
class PartitionRow:
    """What was last done for a topic-partition.

    Attributes:
        topic_id: Kafka's id of the topic; offsets of another topic of the same name mean nothing.
    """

    handled: Handled
    batch: int
    commit_id: str
    topic_id: str


@dataclass(frozen=True)
class PartitionWrite:
    """BEFORE or AFTER for these topic-partitions, in the name of a batch: the last one of a step.

    Attributes:
        confirms: this owner has just written the same but for the phase.
    """

    batch: Batch
    phase: Phase
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    confirms: bool = False

    def row(self, tp: TopicPartition) -> PartitionRow:
        handled = Handled(self.spans[tp], self.phase)
        return PartitionRow(handled, self.batch.number, self.batch.commit_id, self.batch.topic_ids.get(tp.topic, ""))


class StateStore(Protocol):
    """Where leases are kept. KeeperMap in `keeper.py`; the tests have a twin in memory."""

    def lease(self) -> Lease | None:
        """The lease as it is now; None before the first run."""

    def swap(self, seen: Lease | None, new: Lease) -> Lease:
        """Writes `new` if the lease is still `seen`, and returns it as written.

        Raises:
            Interrupted: another run owns it now. CommitFailed: somebody else changed it.
        """

    def partitions(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionRow]:
        """The rows of these topic-partitions, as far as there are any."""

    def write(self, held: Lease, rows: PartitionWrite, known: Collection[TopicPartition]) -> None:
        """Writes rows of topic-partitions under a lease; `known` are those that have one.

        Raises:
            Interrupted: a newer owner has written some of them.
        """
