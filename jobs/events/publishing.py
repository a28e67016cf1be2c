"""Publishes commit events: control topic and consumer groups (step 4 of `jobs/protocol.py`).

Events are informational: they may be repeated, and no decision about data depends on them. Data waits for them at most
`control.time_limit_seconds` and never fails because of them: a problem is logged, the role is dropped, and the next
step or run opens another one, which publishes what is missing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace

from jobs import offsets
from jobs.batch import Batch, CommittedState, LandedBatch
from jobs.destinations.base import Destination
from jobs.events.messages import Payload
from jobs.events.pending import Due
from jobs.events.quietly import quietly
from jobs.events.role import PipelineRole, Role
from jobs.events.roles import (
    LANDING,
    commit_complete,
    commit_ready,
    commit_request,
    commit_response,
    commit_table,
    own_role,
    role_of,
    table_role,
)
from jobs.failpoints import GROUP, failpoint
from jobs.pipeline import Pipeline
from jobs.time_limit import with_timeout
from resources.errors import BatchmergeError, Unavailable
from resources.kafka_groups import commit_group

_LOG = logging.getLogger("batchmerge")
# Time limit in seconds for reading another table's state.
_PATIENCE = 10.0
# Seconds until a table that did not respond is read again.
_AGAIN = 300.0


class LandingEvents:
    """The events that one run of landing publishes; after a problem none, since the next run publishes them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._role: PipelineRole | None = None
        self._requested, self._landed = set[str](), list[LandedBatch]()

    def catch_up(self) -> None:
        """Publishes the events of batches that a dead run has landed."""
        if self._pipeline.spec.control.enabled:
            self._publish(self._catch_up)

    def _catch_up(self) -> None:
        self._role = role_of(self._pipeline, LANDING)
        self._landed = self._pipeline.intermediate.landed().batches
        self._publish_landed(self._role)

    def requested(self, batch: Batch) -> None:
        """Publishes the events before a batch is landed."""
        if role := self._role:
            self._publish(lambda: role.publish("request", [commit_request(batch)]))
            self._requested.add(batch.commit_id)

    def landed(self, batch: LandedBatch) -> None:
        """Publishes the events after a batch was landed."""
        if role := self._role:
            self._landed.append(batch)
            self._publish(lambda: self._publish_landed(role))

    def _publish_landed(self, role: PipelineRole) -> None:
        known = {b.batch.commit_id: b for b in self._landed}
        if not known:
            return

        def payloads(state: CommittedState) -> list[Payload]:
            batch = known[state.commit_id]
            # A run that died may have sent the request already; readers recognize repetitions by the event id.
            first: list[Payload] = [] if state.commit_id in self._requested else [commit_request(batch.batch)]
            return [*first, commit_response(self._pipeline.intermediate, batch), commit_ready(batch.batch)]

        role.publish_due([Due("ready", role.group, CommittedState.after(self._landed[-1]), self._landed, payloads)])

    def _publish(self, work: Callable[[], None]) -> None:
        if not _quietly(self._pipeline, LANDING, LANDING, work):
            self._role = None


def publish_table_events(
    pipeline: Pipeline,
    destination: Destination,
    landed: Sequence[LandedBatch],
    merged: Sequence[LandedBatch] = (),
    reference: str | None = None,
) -> None:
    """Publishes the pending events after a merge into this table, or if there was nothing to merge.

    If the minimum over all tables has advanced, the events about it are published too; if two runs notice that at once,
    both publish them, with the same event ids.

    Args:
        landed: the landed batches that are still known, ascending.
        merged: the batches that this step has merged, in the commit `reference`.
    """
    name = table_role(pipeline, destination.table)

    def table_events(state: CommittedState) -> list[Payload]:
        here = any(b.number == state.batch_number for b in merged)
        found = reference if here else destination.commit_reference(state.batch_number)
        return [commit_table(destination.table, state, found)]

    def due(group: str) -> Iterator[Due]:
        """Other tables are read after the table's own events, so that slow ones do not delay these."""
        if committed := destination.committed():
            yield Due("table", group, committed, landed, table_events, merged)
        if states := _states(pipeline, {destination.name: committed}):
            lowest = min(states, key=lambda state: state.batch_number)
            lowest = replace(lowest, offsets=offsets.minimum(state.offsets for state in states))
            alone = len(states) == 1 and not pipeline.part_of
            yield Due("complete", pipeline.group, lowest, landed, lambda state: [commit_complete(state)], merged, alone)

    def publish() -> None:
        role = role_of(pipeline, name)
        role.publish_due(due(role.group))

    enabled = pipeline.spec.control.enabled
    _quietly(pipeline, name, destination.name, publish if enabled else lambda: _move_group(pipeline))


def open_in_background(pipeline: Pipeline, destination: Destination) -> None:
    """Opens the table's event publisher in a thread, while the table is merged."""
    if pipeline.spec.control.enabled and not pipeline.events:
        role = own_role(pipeline, table_role(pipeline, destination.table))
        args = (_opened, role)
        threading.Thread(target=copy_context().run, args=args, daemon=True, name="batchmerge-events").start()


def _opened(role: Role) -> None:
    # A problem is reported when there are events to publish.
    with suppress(BatchmergeError):
        role.open()


def _move_group(pipeline: Pipeline) -> None:
    """Sets the consumer group to the minimum over all tables, so that lag exporters show what the tables have."""
    states = _states(pipeline, {})
    least = offsets.minimum(s.offsets for s in states) if states else {}
    if pipeline.events:
        pipeline.events.move_group(least)
        return
    commit_group(pipeline.kafka, pipeline.group, least)
    failpoint(GROUP)


def _states(pipeline: Pipeline, known: Mapping[str, CommittedState | None]) -> list[CommittedState] | None:
    """The states of all tables; None if one has no batch yet, or cannot be read now: the next run tries again.

    A table that does not respond delays the others only briefly, and is not read again for a while.

    Args:
        known: states that were just read, by the table's name.
    """
    states, retry_at = [], pipeline.retry_at
    for destination in pipeline.destinations():
        name, now = destination.name, time.monotonic()
        try:
            if now < retry_at.get(name, 0.0):
                raise Unavailable("it did not answer a short while ago", where=name)
            state = known[name] if name in known else with_timeout(_PATIENCE, name, destination.committed)
        except BatchmergeError as problem:
            if now >= retry_at.get(name, 0.0):
                retry_at[name] = time.monotonic() + _AGAIN
            _LOG.warning("the consumer group waits for %s: %s", name, problem)
            return None
        if state is None:
            return None
        states.append(state)
    return states


def _quietly(pipeline: Pipeline, role: str, who: str, work: Callable[[], None]) -> bool:
    """Whether the work was done in time; if not, the role is dropped, since it may still be at work."""
    if pipeline.events is None:
        done = quietly(pipeline.spec.control, who, work)
        if not done:
            pipeline.roles.pop(role, None)
        return done
    work()  # only adds the events to those of all members
    return True
