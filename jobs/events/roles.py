"""When the control events are sent, and by whom.

Each role of a pipeline speaks for itself, in transactions that a newer run of the same role fences: `landing`, and
every destination table. Beside the events a transaction moves consumer groups, and with them the note of what was
told. A run that dies before the transaction's end has told nothing; the next one finds the batches unsaid.

==============================  ======================================  ==============================================
when                            events                                  consumer group, moved in the same transaction
==============================  ======================================  ==============================================
before a batch is landed        commit request
when it is landed               commit response, commit ready           ``batchmerge-<pipeline>/landing``
when a table has committed      commit table, for each batch merged     ``batchmerge-<pipeline>/<connection>.<table>``
when it was the last table      commit complete, for each such batch    ``batchmerge-<pipeline>``: minimum of all tables
==============================  ======================================  ==============================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from jobs import offsets
from jobs.batch import Batch, CommittedState, LandedBatch
from jobs.destinations.base import Destination
from jobs.events.files import landed_files
from jobs.events.messages import (
    CommitComplete,
    CommitReady,
    CommitRequest,
    CommitResponse,
    CommitTable,
    Payload,
    encode,
    make_event,
)
from jobs.events.pending import Said, newest_said, unsaid
from jobs.failpoints import failpoint
from jobs.pipeline import Pipeline
from resources.control_topic import ControlWriter, GroupProgress, read_notes

# So many batches are told of in one transaction: a long silence is made up for step by step.
_AT_ONCE = 100


class Role:
    """One role of a pipeline: what it has told, and its voice."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self._pipeline = pipeline
        self._control = pipeline.spec.control
        self.group = f"{pipeline.group}/{name}"
        self._told: Said | None = None
        self._writer = ControlWriter(
            pipeline.kafka, self._control.topic, self.group, float(self._control.time_limit_seconds)
        )

    def said(self, group: str, state: CommittedState) -> Said | None:
        """The newest batch that this group's note tells of; it is beside one of the state's offsets."""
        if self._told and group == self.group:
            return self._told  # nobody else can have moved it
        partitions = [(tp.topic, tp.partition) for tp in state.offsets]
        return newest_said(read_notes(self._pipeline.kafka, group, partitions, self._control.time_limit_seconds))

    def tell(self, point: str, payloads: Sequence[Payload], progress: Sequence[GroupProgress] = ()) -> None:
        """Sends these events and moves these groups in one transaction."""
        self._open()
        pipeline = self._pipeline
        values = [encode(make_event(pipeline.name, pipeline.run_id, payload)) for payload in payloads]
        self._writer.send(pipeline.name, values, progress, lambda: failpoint(f"news.{point}.written"))
        failpoint(f"news.{point}.sent")

    def tell_unsaid(
        self,
        point: str,
        group: str,
        state: CommittedState | None,
        find: Callable[[Said | None, CommittedState], list[CommittedState]],
        say: Callable[[CommittedState], list[Payload]],
    ) -> None:
        """Tells of every state up to this one that `find` gives, and moves the group along with what was told."""
        if state is None:
            return
        # Even where nothing is untold: a dead run's open transaction would hold up every reader until it times out.
        # And only after older runs of this role are fenced the note cannot move any more.
        self._open()
        states = find(self.said(group, state), state)
        for first in range(0, len(states), _AT_ONCE):
            some = states[first : first + _AT_ONCE]
            said = Said(some[-1].batch_number, some[-1].commit_id)
            self.tell(point, [payload for state in some for payload in say(state)], [_progress(group, some[-1], said)])
            if group == self.group:
                self._told = said

    def _open(self) -> None:
        if not self._writer.is_open:
            self._writer.open(self._control.create)


def _progress(group: str, state: CommittedState, said: Said) -> GroupProgress:
    return GroupProgress(group, {(tp.topic, tp.partition): o for tp, o in state.offsets.items()}, said.to_note())


class LandingRole:
    """What landing tells."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._role = Role(pipeline, "landing")
        self._requested: set[str] = set()
        self._landed: list[LandedBatch] = []

    def catch_up(self) -> None:
        """Tells of what a run that died has landed."""
        self._landed = self._pipeline.intermediate.landed()[0]
        self._tell()

    def requested(self, batch: Batch) -> None:
        self._role.tell("request", [_request(batch)])
        self._requested.add(batch.commit_id)

    def landed(self, batch: LandedBatch) -> None:
        self._landed.append(batch)
        self._tell()

    def _tell(self) -> None:
        known = {b.batch.commit_id: b for b in self._landed}
        newest = CommittedState.after(self._landed[-1]) if self._landed else None

        def find(said: Said | None, state: CommittedState) -> list[CommittedState]:
            return unsaid(said, self._landed, state, _now())

        def say(state: CommittedState) -> list[Payload]:
            batch = known[state.commit_id]
            # Whether a run that died had requested it, nobody knows: the event id tells a repetition.
            first: list[Payload] = [] if state.commit_id in self._requested else [_request(batch.batch)]
            return [*first, self._response(batch), _ready(batch.batch)]

        self._role.tell_unsaid("ready", self._role.group, newest, find, say)

    def _response(self, batch: LandedBatch) -> CommitResponse:
        table = self._pipeline.intermediate
        files = landed_files(table.catalog, table.identifier, batch.snapshot_id)
        return CommitResponse(
            commit_id=batch.batch.commit_id,
            batch_number=batch.number,
            connection=table.catalog.name,
            table=table.identifier,
            data_files=files.listed,
            files=files.total,
            counts=dict(batch.counts.__dict__),
        )


@dataclass(frozen=True)
class TableRole:
    """What a destination table tells.

    Attributes:
        landed: the landed batches that are still known.
        merged: what this step has merged.
        reference: the commit of `merged`.
    """

    pipeline: Pipeline
    destination: Destination
    landed: Sequence[LandedBatch]
    merged: Sequence[LandedBatch]
    reference: str | None

    def tell(self, all_states: Callable[[], list[CommittedState] | None]) -> None:
        """Tells of the table's batches, and of those that all tables have.

        Args:
            all_states: the states of all tables; None where one of them has none or cannot be read.
        """
        table = self.destination.table
        role = Role(self.pipeline, f"{table.connection}.{table.table}")

        def find(said: Said | None, state: CommittedState) -> list[CommittedState]:
            return unsaid(said, self.landed, state, _now(), self.merged)

        role.tell_unsaid("table", role.group, self.destination.committed(), find, lambda s: [self._commit_table(s)])
        states = all_states()
        if states is None:
            return
        lowest = replace(min(states, key=lambda s: s.batch_number), offsets=offsets.minimum(s.offsets for s in states))

        role.tell_unsaid("complete", self.pipeline.group, lowest, find, lambda s: [_complete(s)])

    def _commit_table(self, state: CommittedState) -> CommitTable:
        here = any(b.number == state.batch_number for b in self.merged)
        reference = self.reference if here else self.destination.commit_reference(state.batch_number)
        return CommitTable(
            commit_id=state.commit_id,
            batch_number=state.batch_number,
            connection=self.destination.table.connection,
            table=self.destination.table.table,
            reference=reference,
            vtts=_instant(state.watermark.vtts),
            caught_up_through=_instant(state.watermark.caught_up_through),
        )


def _request(batch: Batch) -> CommitRequest:
    return CommitRequest(
        commit_id=batch.commit_id,
        batch_number=batch.number,
        previous_commit_id=batch.previous_commit_id,
        planned_at=_instant(batch.planned_at),
        records=offsets.total(batch.ranges),
    )


def _ready(batch: Batch) -> CommitReady:
    return CommitReady(batch.commit_id, batch.number, offsets.starts(batch.ranges), offsets.ends(batch.ranges))


def _complete(state: CommittedState) -> CommitComplete:
    times = state.watermark
    return CommitComplete(state.commit_id, state.batch_number, _instant(times.vtts), _instant(times.caught_up_through))


def _instant(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _now() -> int:
    return int(time.time() * 1000)
