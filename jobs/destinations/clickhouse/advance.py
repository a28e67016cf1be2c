"""Batches into one table on one endpoint, one by one, under a lease (DESIGN section 4, ClickHouse).

    take the lease ── stop what its last owner left running
      per batch:  BEFORE ── insert chunks ── AFTER ── commit (and go on to the next batch, or free the lease)

There is no commit of data and state in one step here, so each step can be done again: the lease says which batch is
under way and how it is cut, the rows of the topic-partitions say what was begun, tokens and coordinates keep rows
from being doubled. The commit moves the state by compare-and-set, and only the owner of the lease gets there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jobs.batch import Batch, CommittedState, LandedBatch
from jobs.destinations.clickhouse.chunks import Chunk, cut, whole
from jobs.destinations.clickhouse.lease import (
    Lease,
    PartitionRow,
    PartitionWrite,
    StateStore,
    require_owner,
    state_text,
)
from jobs.destinations.clickhouse.transitions import Phase, Span, decide
from jobs.failpoints import failpoint
from jobs.lineage import choices
from jobs.offsets import TopicPartition
from resources.errors import CommitFailed, LineageBroken


@dataclass(frozen=True)
class Inserted:
    """What was inserted, in rows; `deletes` are among `rows`, `dead` are not."""

    rows: int = 0
    deletes: int = 0
    dead: int = 0
    written: int = 0

    def __add__(self, other: Inserted) -> Inserted:
        return Inserted(
            self.rows + other.rows, self.deletes + other.deletes, self.dead + other.dead, self.written + other.written
        )


# Inserts chunks of a batch; True: some of them may be there already, beyond what the tokens remember.
Insert = Callable[[Lease, LandedBatch, list[Chunk], bool], Inserted]


@dataclass(frozen=True)
class Advance:
    """How batches get into one table on one endpoint.

    Attributes:
        where: the table and endpoint, for errors.
        stop_older: stops the queries of older owners, and waits until they have stopped.
        insert: does the inserts.
    """

    store: StateStore
    where: str
    run_id: str
    chunk_rows: int
    endpoints: tuple[str, ...]
    table_id: str
    stop_older: Callable[[Lease], None]
    insert: Insert

    def run(self, seen: Lease | None, batches: Sequence[LandedBatch]) -> Inserted:
        """Applies these batches, which continue the committed state of `seen`.

        Raises:
            CommitFailed: the lease is no longer as it was seen. Interrupted: a newer run took it over.
            LineageBroken: another batch than the first of these was left half done.
        """
        self._check_left_behind(seen, batches[0].batch)
        held = self.take(seen, batches[0])
        recovering = bool(seen and seen.left_behind)
        done = Inserted()
        for number, landed in enumerate(batches):
            following = batches[number + 1] if number + 1 < len(batches) else None
            done += self._apply(held, landed, recovering)
            held = self._commit(held, landed, following)
            recovering = False
        return done

    def take(self, seen: Lease | None, first: LandedBatch | None) -> Lease:
        """Makes this run the owner; from then on inserts of older owners are refused or stopped."""
        old = seen or Lease()
        wanted = replace(
            old,
            epoch=old.epoch + 1,
            owner=uuid.uuid4().hex,
            run_id=self.run_id,
            endpoints=self.endpoints,
            table_id=self.table_id,
        )
        if first and not old.left_behind:
            wanted = self._under_way(wanted, first.batch)
        held = self.store.swap(seen, wanted)
        failpoint("clickhouse.leased")
        if old.owner:
            self.stop_older(held)
            failpoint("clickhouse.taken_over")
        return held

    def _under_way(self, lease: Lease, batch: Batch) -> Lease:
        return replace(lease, batch=batch.number, commit_id=batch.commit_id, chunk_rows=self.chunk_rows)

    def _apply(self, held: Lease, landed: LandedBatch, recovering: bool) -> Inserted:
        batch = landed.batch
        if batch.continues is not None:
            self._forget(held, batch)
            return Inserted()
        spans = {tp: whole(piece) for tp, piece in batch.ranges.items() if len(piece)}
        known = self.store.partitions(sorted(spans))
        chunks = self._chunks(held, batch, spans, known)
        if not chunks:
            return Inserted()
        begun = {chunk.tp: spans[chunk.tp] for chunk in chunks}
        self.store.write(held, PartitionWrite(batch, Phase.BEFORE, begun), known)
        failpoint("clickhouse.before")
        inserted = self.insert(held, landed, chunks, recovering)
        failpoint("clickhouse.inserted")
        self.store.write(held, PartitionWrite(batch, Phase.AFTER, begun), begun)
        failpoint("clickhouse.after")
        return inserted

    def _forget(self, held: Lease, batch: Batch) -> None:
        """After a reset of offsets, what was handled before says nothing of what comes."""
        known = self.store.partitions(sorted(batch.ranges))
        forgotten = {tp: row.handled.span for tp, row in known.items()}
        self.store.write(held, PartitionWrite(replace(batch, topic_ids={}), Phase.AFTER, forgotten), known)

    def _chunks(
        self, held: Lease, batch: Batch, spans: dict[TopicPartition, Span], known: dict[TopicPartition, PartitionRow]
    ) -> list[Chunk]:
        """What has to be inserted, by the seed's state machine, cut as it was cut when the batch was begun."""
        chunks: list[Chunk] = []
        for tp, span in sorted(spans.items()):
            last = known.get(tp)
            # Offsets of a topic that was recreated begin anew: what the old one had says nothing of them.
            same_topic = last is not None and last.topic_id == batch.topic_ids.get(tp.topic, "")
            decision = decide(last.handled if last and same_topic else None, span)
            if decision.refused:
                # A run that slept finds what newer runs did, which is no reason to alarm anybody.
                require_owner(held, self.store.lease(), self.where)
                raise LineageBroken(
                    f"offsets {span} of {tp} cannot follow {last.handled.span if last else None} of batch "
                    f"{last.batch if last else 0} (case {decision.case.value!r}): they were moved by somebody else",
                    where=self.where,
                    remedy=choices(batch.pipeline),
                )
            chunks += [chunk for piece in decision.insert for chunk in cut(tp, piece, held.chunk_rows)]
            chunks += [Chunk(tp, piece, dead=True) for piece in decision.dead]
        return chunks

    def _commit(self, held: Lease, landed: LandedBatch, following: LandedBatch | None) -> Lease:
        """The one step that makes a batch part of the table's committed state."""
        state = state_text(CommittedState.after(landed))
        if following:
            wanted = self._under_way(replace(held, state=state), following.batch)
        else:
            wanted = replace(held, state=state, batch=0, commit_id="", chunk_rows=0, owner="")
        moved = self.store.swap(held, wanted)
        failpoint("clickhouse.committed")
        return moved

    def free(self, held: Lease) -> None:
        """Gives the lease back after work that commits nothing (replay)."""
        self.store.swap(held, replace(held, owner=""))

    def _check_left_behind(self, seen: Lease | None, first: Batch) -> None:
        if seen and seen.left_behind and seen.commit_id != first.commit_id:
            if seen.batch < first.number:
                raise CommitFailed(f"batch {seen.batch} is under way in another run", where=self.where)
            raise LineageBroken(
                f"batch {seen.batch} ({seen.commit_id}) was begun and not finished, and what is landed now as batch "
                f"{first.number} is {first.commit_id}",
                where=self.where,
                remedy=choices(first.pipeline),
                batch=seen.batch,
            )
