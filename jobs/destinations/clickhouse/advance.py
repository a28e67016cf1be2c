"""Landed batches into one table on one endpoint, in steps, under a lease (`docs/internals.md`).

    take the lease ── stop what its last owner left running
      per step:  BEFORE ── insert chunks ── AFTER ── commit (and begin the next step, or free the lease)

There is no commit of data and state in one statement here, so each of these can be done again. The lease says which
batches are under way and how they are cut; deduplication tokens and coordinates keep rows from being doubled. The
commit moves the state by compare-and-set, and only the owner of the lease gets there.

Why the way is this short. The connector whose design this follows (`docs/internals.md`) gets batches that
Kafka's group protocol cuts differently at every retry; its nine cases make identical inserts out of them. Here a batch
is immutable once it is landed, and a step is fixed in the lease when it is begun: a retry is the same step, cut into
the same chunks under the same tokens, so a step either follows the one before or is that very one. The other cases
cannot arise on the way. They are what a table may be found in when it is taken up (`found.py`), and the state machine
judges them there.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jobs.batch import CommittedState
from jobs.destinations.clickhouse.found import Found, find, kept_by_reset
from jobs.destinations.clickhouse.insertion import Inserted, Only
from jobs.destinations.clickhouse.state import Lease, PartitionWrite, StateStore, require_owner, state_text
from jobs.destinations.clickhouse.steps import Step
from jobs.destinations.clickhouse.transitions import Phase
from jobs.failpoints import failpoint
from jobs.lineage import choices
from resources.errors import LineageBroken

# Inserts the chunks of a step, or only what of them is not there yet, beyond what the tokens remember.
Insert = Callable[[Lease, Step, Only], Inserted]


@dataclass(frozen=True)
class Advance:
    """How steps get into one table on one endpoint.

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

    def run(self, seen: Lease | None, steps: Sequence[Step]) -> Inserted:
        """Applies these steps, which continue the committed state of `seen`.

        Raises:
            CommitFailed: the lease is no longer as it was seen. Interrupted: a newer run took it over.
            LineageBroken: offsets were moved by somebody else.
        """
        retries = bool(seen and seen.left_behind and seen.commit_id == steps[0].batch.commit_id)
        is_same = retries and seen is not None and seen.chunk_rows == steps[0].chunk_rows
        held = self.take(seen, None if is_same else steps[0])
        done = Inserted()
        for number, step in enumerate(steps):
            held, inserted = self._apply(held, step, retries)
            done += inserted
            held = self._commit(held, step, steps[number + 1] if number + 1 < len(steps) else None)
            retries = False
        return done

    def take(self, seen: Lease | None, step: Step | None) -> Lease:
        """Makes this run the owner, with a step begun; from then on inserts of older owners are refused or stopped."""
        old = seen or Lease()
        wanted = replace(
            old,
            # Above those of a state that was forgotten: a run of then may only sleep.
            epoch=max(old.epoch + 1, int(time.time() * 1000)),
            owner=uuid.uuid4().hex,
            run_id=self.run_id,
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

    def free(self, held: Lease) -> None:
        """Gives the lease back after work that commits nothing (replay)."""
        self.store.swap(held, replace(held, owner=""))

    def _apply(self, held: Lease, step: Step, retries: bool) -> tuple[Lease, Inserted]:
        if step.resets:
            self._reset(held, step)
        if step.revises:
            # Nothing of it depends on tokens: rows are asked for their record, or have the same version again.
            inserted = self.insert(held, step, Only.RECORD)
            failpoint("clickhouse.inserted")
            return held, inserted
        if not step.chunks:
            return held, Inserted()
        known = self.store.partitions(sorted(step.spans))
        found = find(step, known, _committed(held))
        if found.refused:
            self._refuse(held, step, found)
        if found.is_done:
            return held, Inserted()
        if found.some and step.first > held.refill_until:
            # BEFORE takes the place of the rows that say so: a retry has to know it, too.
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
        forgotten = {tp: row.handled.span for tp, row in known.items() if tp not in kept}
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

    def _refuse(self, held: Lease, step: Step, found: Found) -> None:
        # A run that slept finds what newer runs did, which is no reason to alarm anybody.
        require_owner(held, self.store.lease(), self.where)
        assert found.refused
        tp, case = found.refused
        row = self.store.partitions([tp])[tp]
        raise LineageBroken(
            f"offsets {step.spans[tp]} of {tp} cannot follow {row.handled.span} of batch {row.batch} (case "
            f"{case.value!r}): they were moved by somebody else",
            where=self.where,
            remedy=choices(step.batch.pipeline),
        )


def _only(held: Lease, step: Step, retries: bool) -> Only:
    # An older version has left no mark of the step in its rows.
    if step.first <= held.refill_until or (retries and not held.step):
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
