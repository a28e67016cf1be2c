"""Inserts landed batches into one table on one endpoint, in steps, under a lease (`docs/internals.md`).

    take the lease ── stop what its last owner left running
      per step:  BEFORE ── insert chunks ── AFTER ── commit (and begin the next step, or free the lease)

ClickHouse cannot commit data and state in one statement, so each of these actions can be repeated. The lease says
which batches are being inserted and how they are cut; deduplication tokens and coordinates prevent doubled rows. The
commit moves the state by compare-and-set, which only the owner of the lease can do.

Why this is simpler than the connector whose design it follows (`docs/internals.md`): Kafka's group protocol cuts that
connector's batches differently at every retry, and its nine cases make identical inserts out of them. Here a landed
batch is immutable, and the lease fixes a step when it is begun: a retry is the same step, cut into the same chunks with
the same tokens. So a step either follows the previous one or is the same one. The other cases are only possible when a
run begins with a table (after a crash, a reset or another writer); there the state machine decides (`found.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jobs.batch import CommittedState
from jobs.destinations.clickhouse.found import find, kept_by_reset
from jobs.destinations.clickhouse.insert_task import InsertCounts, Only
from jobs.destinations.clickhouse.state import Lease, PartitionWrite, StateStore, require_owner, state_text
from jobs.destinations.clickhouse.steps import Step
from jobs.destinations.clickhouse.transitions import Phase
from jobs.failpoints import failpoint
from jobs.lineage import choices
from resources.errors import LineageBroken

# Inserts the chunks of a step; as `Only` says, without rows that are in the table already.
Insert = Callable[[Lease, Step, Only], InsertCounts]


@dataclass(frozen=True)
class Advance:
    """Inserts steps into one table on one endpoint.

    Attributes:
        where: the table and endpoint, for errors.
        stop_older: stops the queries of older owners, and waits until they have stopped.
        insert: does the inserts.
    """

    store: StateStore
    where: str
    run_id: str
    endpoints: tuple[str, ...]
    spread_by: str
    table_id: str
    stop_older: Callable[[Lease], None]
    insert: Insert

    def run(self, seen: Lease | None, steps: Sequence[Step]) -> InsertCounts:
        """Applies these steps, which continue the committed state of `seen`.

        Raises:
            CommitFailed: the lease has changed since it was read. Interrupted: a newer run has taken it over.
            LineageBroken: another writer has moved the offsets.
        """
        retries = bool(seen and seen.left_behind and seen.commit_id == steps[0].batch.commit_id)
        is_same = retries and seen is not None and seen.chunk_rows == steps[0].chunk_rows
        held = self.take(seen, None if is_same else steps[0])
        done = InsertCounts()
        for number, step in enumerate(steps):
            held, inserted = self._apply(held, step, retries)
            done += inserted
            held = self._commit(held, step, steps[number + 1] if number + 1 < len(steps) else None)
            retries = False
        return done

    def take(self, seen: Lease | None, step: Step | None) -> Lease:
        """Makes this run the owner and begins the step; from then on inserts of older owners are refused or stopped."""
        old = seen or Lease()
        wanted = replace(
            old.with_new_owner(self.run_id),
            endpoints=self.endpoints,
            spread_by=self.spread_by,
            table_id=self.table_id,
        )
        held = self.store.swap(seen, _begun(wanted, step) if step else wanted)
        failpoint("clickhouse.leased")
        if old.owner:
            self.stop_older(held)
            failpoint("clickhouse.taken_over")
        return held

    def _apply(self, held: Lease, step: Step, retries: bool) -> tuple[Lease, InsertCounts]:
        if step.resets:
            self._reset(held, step)
        if step.revises:
            # Safe without tokens: records that the table has are not inserted again, or get the same version.
            inserted = self.insert(held, step, Only.RECORD)
            failpoint("clickhouse.inserted")
            return held, inserted
        if not step.chunks:
            return held, InsertCounts()
        known = self.store.partitions(sorted(step.spans))
        found = find(step, known, _committed(held))
        if found.refused:
            # A run that slept may see the work of a newer owner: then it is interrupted, and nothing is wrong.
            require_owner(held, self.store.lease(), self.where)
            tp, case = found.refused
            raise LineageBroken(
                f"offsets {step.spans[tp]} of {tp} cannot follow {known[tp].span} of batch {known[tp].batch} (case "
                f"{case.value!r}): another writer has moved them",
                where=self.where,
                remedy=choices(step.batch.pipeline),
            )
        if found.is_done:
            return held, InsertCounts()
        if found.some and step.first > held.refill_until:
            # BEFORE overwrites the rows that show this; the lease keeps it, so that a retry also checks the records.
            held = self.store.swap(held, replace(held, refill_until=step.last))
        begun = found.begun(step.spans)
        self.store.write(held, PartitionWrite(step.batch, Phase.BEFORE, begun), known)
        failpoint("clickhouse.before")
        inserted = self.insert(held, step, _only(held, step, retries))
        failpoint("clickhouse.inserted")
        confirmed = {tp: span for tp, span in step.spans.items() if tp not in found.beyond}
        self.store.write(held, PartitionWrite(step.batch, Phase.BEFORE, found.beyond), begun)
        self.store.write(held, PartitionWrite(step.batch, Phase.AFTER, confirmed, confirms=True), begun)
        failpoint("clickhouse.after")
        return held, inserted

    def _reset(self, held: Lease, step: Step) -> None:
        """Forgets the handled ranges after an offset reset, except those whose rows may be in the table."""
        known = self.store.partitions(sorted(step.batch.ranges))
        kept = kept_by_reset(step.batch, known, _committed(held))
        forgotten = {tp: row.span for tp, row in known.items() if tp not in kept}
        self.store.write(held, PartitionWrite(step.batch, Phase.BEFORE, kept), known)
        self.store.write(held, PartitionWrite(replace(step.batch, topic_ids={}), Phase.AFTER, forgotten), known)
        failpoint("clickhouse.reset")

    def _commit(self, held: Lease, step: Step, following: Step | None) -> Lease:
        """The one write that makes a step part of the table's committed state."""
        moved = replace(held, state=state_text(CommittedState.after(step.batches[-1])))
        moved = _begun(moved, following) if following else replace(moved.idle(), owner="")
        moved = self.store.swap(held, moved)
        failpoint("clickhouse.committed")
        return moved


def _only(held: Lease, step: Step, retries: bool) -> Only:
    if step.first <= held.refill_until:
        return Only.RECORD
    return Only.STEP if retries else Only.ALL


def _begun(lease: Lease, step: Step) -> Lease:
    return replace(
        lease,
        first_batch=step.first,
        batch=step.last,
        commit_id=step.batch.commit_id,
        chunk_rows=step.chunk_rows,
        step=uuid.uuid4().hex,
    )


def _committed(lease: Lease) -> int:
    return lease.committed.batch_number if lease.committed else 0
