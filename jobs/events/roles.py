"""Roles: when control events are published, and by whom.

A pipeline has the role `landing` and one role per destination table. Each publishes its own events, in transactions
that a newer run of the same role can fence. A transaction also moves consumer groups and their metadata, which has the
newest published batch. A run that dies before the end of the transaction has published nothing; the next run finds its
batches pending.

==============================  ======================================  ==============================================
when                            events                                  consumer group, moved in the same transaction
==============================  ======================================  ==============================================
before a batch is landed        commit request
when it is landed               commit response, commit ready           ``batchmerge-<pipeline>/landing``
when a table has committed      commit table, for each batch merged     ``batchmerge-<pipeline>/<connection>.<table>``
when it was the last table      commit complete, for each such batch    ``batchmerge-<pipeline>``: minimum of all tables
==============================  ======================================  ==============================================

With `source.for_each` all topics share one landing role, and the tables of an entry of `tables` share one role
(``tables-0``); their groups have the offsets of all topics (`jobs.events.shared_events`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from jobs import offsets
from jobs.batch import Batch, CommittedState, LandedBatch
from jobs.destinations.base import Destination
from jobs.events.messages import (
    CommitComplete,
    CommitReady,
    CommitRequest,
    CommitResponse,
    CommitTable,
    DataFile,
    Payload,
)
from jobs.events.pending import Due, PublishedThrough, pending
from jobs.events.role import Role
from jobs.events.shared_events import SharedRole
from jobs.iceberg.attempt import added_files
from jobs.pipeline import Pipeline
from jobs.spec.tables import Table
from resources.iceberg import IcebergCatalog
from resources.iceberg_errors import catalog_errors

LANDING = "landing"
AllStates = Callable[[Mapping[str, CommittedState | None]], list[CommittedState] | None]
# The most files in an event; more would make a message that Kafka refuses (1 MB by default).
_MOST_FILES = 10_000


def role_of(pipeline: Pipeline, name: str) -> Role | SharedRole:
    """The role, which may be open from the previous batch. Members of a pipeline that work side by side share one."""
    if pipeline.events:
        return SharedRole(pipeline.events, pipeline.name)
    control = pipeline.spec.control
    group = control.group(pipeline.part_of or pipeline.name, name)
    role = Role(pipeline.name, control, pipeline.kafka, pipeline.run_id, group)
    return pipeline.roles.setdefault(name, role)


def table_role(pipeline: Pipeline, table: Table) -> str:
    """The name of a table's role."""
    of_member = pipeline.part_of and table in pipeline.spec.tables
    return f"tables-{pipeline.spec.tables.index(table)}" if of_member else f"{table.connection}.{table.table}"


class LandingRole:
    """The events of landing."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._role = role_of(pipeline, LANDING)
        self._requested: set[str] = set()
        self._landed: list[LandedBatch] = []

    def catch_up(self) -> None:
        """Publishes the events of batches that a dead run has landed."""
        self._landed = self._pipeline.intermediate.landed().batches
        self._publish()

    def requested(self, batch: Batch) -> None:
        self._role.publish("request", [_request(batch)])
        self._requested.add(batch.commit_id)

    def landed(self, batch: LandedBatch) -> None:
        self._landed.append(batch)
        self._publish()

    def _publish(self) -> None:
        known = {b.batch.commit_id: b for b in self._landed}
        if not self._landed:
            return
        newest = CommittedState.after(self._landed[-1])

        def find(published: PublishedThrough | None, state: CommittedState) -> list[CommittedState]:
            return pending(published, self._landed, state, _now())

        def payloads(state: CommittedState) -> list[Payload]:
            batch = known[state.commit_id]
            # A run that died may have sent the request already; readers recognize repetitions by the event id.
            first: list[Payload] = [] if state.commit_id in self._requested else [_request(batch.batch)]
            return [*first, self._response(batch), _ready(batch.batch)]

        self._role.publish_due([Due("ready", self._role.group, newest, find, payloads)])

    def _response(self, batch: LandedBatch) -> CommitResponse:
        table = self._pipeline.intermediate
        files = _landed_files(table.catalog, table.identifier, batch.snapshot_id)
        return CommitResponse(
            commit_id=batch.batch.commit_id,
            batch_number=batch.number,
            connection=table.catalog.name,
            table=table.identifier,
            data_files=tuple(files[:_MOST_FILES]),
            files=len(files),
            counts=dict(batch.counts.__dict__),
        )


@dataclass(frozen=True)
class TableRole:
    """The events of a destination table.

    Attributes:
        landed: the landed batches that are still known.
        merged: the batches that this step has merged.
        reference: the commit of `merged`.
    """

    pipeline: Pipeline
    destination: Destination
    landed: Sequence[LandedBatch]
    merged: Sequence[LandedBatch]
    reference: str | None

    def publish(self, all_states: AllStates) -> None:
        """Publishes the events of the table's batches, and of those that all tables have.

        Args:
            all_states: reads the states of all tables, but of those that it gets; returns None if one has no state or
                cannot be read.
        """
        role = role_of(self.pipeline, table_role(self.pipeline, self.destination.table))
        role.publish_due(self._due(role.group, all_states))

    def _due(self, group: str, all_states: AllStates) -> Iterator[Due]:
        """The pending events. Other tables are read after the table's own events, so that slow ones do not delay
        these."""

        def find(published: PublishedThrough | None, state: CommittedState) -> list[CommittedState]:
            return pending(published, self.landed, state, _now(), self.merged)

        if committed := self.destination.committed():
            yield Due("table", group, committed, find, lambda state: [self._commit_table(state)])
        if states := all_states({self.destination.name: committed}):
            lowest = min(states, key=lambda state: state.batch_number)
            lowest = replace(lowest, offsets=offsets.minimum(state.offsets for state in states))
            alone = len(states) == 1 and not self.pipeline.part_of
            yield Due("complete", self.pipeline.group, lowest, find, lambda state: [_complete(state)], alone)

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


def _landed_files(catalog: IcebergCatalog, identifier: str, snapshot_id: int) -> list[DataFile]:
    """The files that a snapshot added; none if it has expired."""
    table = catalog.load(identifier)
    if table is None:
        return []
    with catalog_errors(identifier):
        return [
            DataFile(f.file_path, f.file_format.value, f.record_count, f.file_size_in_bytes)
            for f in added_files(table, snapshot_id)
        ]


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
