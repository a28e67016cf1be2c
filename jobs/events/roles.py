"""Roles: when control events are published, by whom, and what they say.

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

from datetime import UTC, datetime

from jobs import offsets
from jobs.batch import Batch, CommittedState, LandedBatch
from jobs.events.messages import (
    CommitComplete,
    CommitReady,
    CommitRequest,
    CommitResponse,
    CommitTable,
    DataFile,
)
from jobs.events.role import PipelineRole, Role
from jobs.iceberg.attempt import added_files
from jobs.landing.intermediate import IntermediateTable
from jobs.pipeline import Pipeline
from jobs.spec.tables import Table
from resources.iceberg_errors import catalog_errors

LANDING = "landing"
# The most files in an event; more would make a message that Kafka refuses (1 MB by default).
_MOST_FILES = 10_000


def role_of(pipeline: Pipeline, name: str) -> PipelineRole:
    """The role, for a piece of work. Members of a pipeline that work side by side share one."""
    if shared := pipeline.events:
        return PipelineRole(pipeline.name, shared.group, shared.add)
    role = own_role(pipeline, name)
    role.begin()
    return PipelineRole(pipeline.name, role.group, role.send)


def own_role(pipeline: Pipeline, name: str) -> Role:
    """The role, which may be open from the previous batch."""
    control = pipeline.spec.control
    group = control.group(pipeline.part_of or pipeline.name, name)
    return pipeline.roles.setdefault(name, Role(control, pipeline.kafka, pipeline.run_id, group))


def table_role(pipeline: Pipeline, table: Table) -> str:
    """The name of a table's role."""
    of_member = pipeline.part_of and table in pipeline.spec.tables
    return f"tables-{pipeline.spec.tables.index(table)}" if of_member else f"{table.connection}.{table.table}"


def commit_request(batch: Batch) -> CommitRequest:
    return CommitRequest(
        commit_id=batch.commit_id,
        batch_number=batch.number,
        previous_commit_id=batch.previous_commit_id,
        planned_at=_instant(batch.planned_at),
        records=offsets.total(batch.ranges),
    )


def commit_response(place: IntermediateTable, batch: LandedBatch) -> CommitResponse:
    files = _landed_files(place, batch.snapshot_id)
    return CommitResponse(
        commit_id=batch.batch.commit_id,
        batch_number=batch.number,
        connection=place.catalog.name,
        table=place.identifier,
        data_files=tuple(files[:_MOST_FILES]),
        files=len(files),
        counts=dict(batch.counts.__dict__),
    )


def _landed_files(place: IntermediateTable, snapshot_id: int) -> list[DataFile]:
    """The files that a snapshot added; none if it has expired."""
    table = place.catalog.load(place.identifier)
    if table is None:
        return []
    with catalog_errors(place.identifier):
        return [
            DataFile(f.file_path, f.file_format.value, f.record_count, f.file_size_in_bytes)
            for f in added_files(table, snapshot_id)
        ]


def commit_ready(batch: Batch) -> CommitReady:
    return CommitReady(batch.commit_id, batch.number, offsets.starts(batch.ranges), offsets.ends(batch.ranges))


def commit_table(table: Table, state: CommittedState, reference: str | None) -> CommitTable:
    """The event of a table's commit; `reference` names the commit."""
    return CommitTable(
        commit_id=state.commit_id,
        batch_number=state.batch_number,
        connection=table.connection,
        table=table.table,
        reference=reference,
        vtts=_instant(state.watermark.vtts),
        caught_up_through=_instant(state.watermark.caught_up_through),
    )


def commit_complete(state: CommittedState) -> CommitComplete:
    times = state.watermark
    return CommitComplete(state.commit_id, state.batch_number, _instant(times.vtts), _instant(times.caught_up_through))


def _instant(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
