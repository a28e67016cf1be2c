"""The state of one table on one endpoint: a lease that carries the committed state, and a row per topic-partition.

The lease's owner may insert; every insert checks the owner again (the fence). The lease changes only by
compare-and-set, and it alone determines which batches the table has.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from jobs.batch import Batch, CommittedState
from jobs.compact_text import compact_text, plain_text
from jobs.destinations.clickhouse.transitions import Phase, Span
from jobs.offsets import TopicPartition
from resources.clickhouse_errors import NEWER_RUN
from resources.errors import Interrupted


@dataclass(frozen=True)
class Lease:
    """The owner that may insert, the current step, and the committed state.

    The step is fixed here when it is begun, so that a retry is the same whatever was landed or changed in the file
    since.

    Attributes:
        change: unique for each write; the next write compares it.
        epoch: increases with every new owner.
        owner: token of the run that holds the lease; empty if no run does.
        run_id: the orchestrator's id of that run.
        first_batch: the first batch of the current step; 0 for none.
        batch: the step's last batch; 0 for none.
        commit_id: of the step's last batch.
        chunk_rows: the number of offsets by which the step is cut into chunks.
        step: the step's id, the prefix of deduplication tokens; empty for none.
        refill_until: records of batches up to this one may be in the table, inserted by another step; 0 for none.
        state: the committed state as JSON; empty before the first batch.
        endpoints: of the connection; their number and order determine how rows are spread.
        spread_by: the hash by which rows are spread; empty for one endpoint, and if an older version wrote the lease.
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
        """Whether a step was begun and not finished."""
        return self.batch > 0

    def idle(self) -> Lease:
        """The lease without a current step."""
        return replace(self, first_batch=0, batch=0, commit_id="", chunk_rows=0, step="")

    def with_new_owner(self, run_id: str = "") -> Lease:
        """The lease with a new owner."""
        # By the clock: higher than in any state that was forgotten, whose run may still wake up.
        epoch = max(self.epoch + 1, int(time.time() * 1000))
        return replace(self, epoch=epoch, owner=uuid.uuid4().hex, run_id=run_id)


def require_owner(held: Lease, now: Lease | None, where: str) -> None:
    """Requires that the lease still belongs to this run.

    Raises:
        Interrupted: a newer owner has taken the table over.
    """
    if now is None or now.owner != held.owner:
        raise Interrupted("another run has taken this table over", where=where, remedy=NEWER_RUN)


# Longer states are compressed: ClickHouse accepts parameters of up to 128 KB, and thousands of partitions need more.
_READABLE = 31_999


def state_text(state: CommittedState) -> str:
    """A committed state for the lease: readable JSON, compressed if it is long."""
    return compact_text(json.dumps(state.to_properties(), sort_keys=True), _READABLE)


def state_from_text(text: str) -> CommittedState:
    """The inverse of `state_text`."""
    return CommittedState.from_properties(json.loads(plain_text(text)))


@dataclass(frozen=True)
class PartitionRow:
    """The last insert of a topic-partition.

    Attributes:
        span: the offsets that were handled last.
        topic_id: Kafka's id of the topic, since a recreated topic has unrelated offsets.
    """

    span: Span
    phase: Phase
    batch: int
    commit_id: str
    topic_id: str


@dataclass(frozen=True)
class PartitionWrite:
    """A write of BEFORE or AFTER for these topic-partitions, for the last batch of a step.

    Attributes:
        confirms: this owner has just written the same rows with another phase.
    """

    batch: Batch
    phase: Phase
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    confirms: bool = False

    def row(self, tp: TopicPartition) -> PartitionRow:
        batch = self.batch
        return PartitionRow(
            self.spans[tp], self.phase, batch.number, batch.commit_id, batch.topic_ids.get(tp.topic, "")
        )


class StateStore(Protocol):
    """The store of leases: KeeperMap (`keeper.py`), or memory in tests."""

    def lease(self) -> Lease | None:
        """The current lease; None before the first run."""

    def swap(self, seen: Lease | None, new: Lease) -> Lease:
        """Writes `new` if the lease is still `seen`, and returns it as written.

        Raises:
            Interrupted: another run owns it now. CommitFailed: it was changed by another writer.
        """

    def partitions(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionRow]:
        """The rows of those of these topic-partitions that have one."""

    def write(self, held: Lease, rows: PartitionWrite, known: Collection[TopicPartition]) -> None:
        """Writes rows of topic-partitions under a lease; `known` are those that have a row.

        Raises:
            Interrupted: a newer owner has written some of them; not if they only confirm, which writes nothing then.
        """
