"""Publishes commit events: control topic and consumer groups (step 4 of `jobs/protocol.py`).

Informational, repeatable, never read back as truth. Data waits for it at most `control.time_limit_seconds` and never
fails by it: a problem is a warning, this role publishes nothing more in this run, and the next run makes up for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context

from jobs import offsets
from jobs.batch import Batch, CommittedState, LandedBatch
from jobs.destinations.base import Destination
from jobs.events.quietly import quietly
from jobs.events.role import Role
from jobs.events.roles import LANDING, LandingRole, TableRole, role_of, table_role
from jobs.failpoints import GROUP, failpoint
from jobs.pipeline import Pipeline
from jobs.time_limit import with_timeout
from resources.errors import BatchmergeError, Interrupted, Unavailable
from resources.kafka_groups import commit_group

_LOG = logging.getLogger("batchmerge")
# Seconds: for a look at another table; and until one that was silent is looked at again.
_PATIENCE, _AGAIN = 10.0, 300.0


class LandingEvents:
    """The events that one run of landing publishes."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._role: LandingRole | None = None

    def catch_up(self) -> None:
        """Events of batches that a run which died has landed."""
        if self._pipeline.spec.control.enabled:
            self._publish(lambda: _taken_over(self._pipeline, LANDING, self._catch_up))

    def _catch_up(self) -> None:
        self._role = LandingRole(self._pipeline)
        self._role.catch_up()

    def requested(self, batch: Batch) -> None:
        """Before a batch is landed."""
        if role := self._role:
            self._publish(lambda: role.requested(batch))

    def landed(self, batch: LandedBatch) -> None:
        """After it."""
        if role := self._role:
            self._publish(lambda: role.landed(batch))

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
    """After a merge into this table, or where there was nothing to merge: publishes what is pending.

    The run that finds the minimum over all tables advanced publishes that too; where two runs find it at once, both
    do, with the same event ids.

    Args:
        landed: the landed batches that are still known, ascending.
        merged: those that this step has merged, in the commit `reference`.
    """
    role, name = TableRole(pipeline, destination, landed, merged, reference), table_role(pipeline, destination.table)

    def publish() -> None:
        if pipeline.spec.control.enabled:
            _taken_over(pipeline, name, lambda: role.publish(lambda: _states(pipeline)))
        else:
            _move_group(pipeline)

    _quietly(pipeline, name, destination.name, publish)


def open_in_background(pipeline: Pipeline, destination: Destination) -> None:
    """Opens the table's event publisher in a thread, while the table is merged."""
    if pipeline.spec.control.enabled and not pipeline.events:
        role = role_of(pipeline, table_role(pipeline, destination.table))
        args = (_opened, role)
        threading.Thread(target=copy_context().run, args=args, daemon=True, name="batchmerge-events").start()


def _opened(role: Role) -> None:
    # What stands in the way is reported when there are events to publish.
    with suppress(BatchmergeError):
        role.open()


def _taken_over(pipeline: Pipeline, role: str, work: Callable[[], None]) -> None:
    """Retries the work once where another run has taken over a role that this run opened for earlier work. A role that
    was opened for this work gives way instead: the other run is newer."""
    is_used = role in pipeline.roles and pipeline.roles[role].is_used
    try:
        work()
    except Interrupted:
        if not is_used:
            raise
        pipeline.roles.pop(role, None)
        work()


def _move_group(pipeline: Pipeline) -> None:
    """Sets the consumer group to the minimum over all tables, so that every lag exporter shows what is really there."""
    states = _states(pipeline)
    least = offsets.minimum(s.offsets for s in states) if states else {}
    if pipeline.events:
        pipeline.events.move_group(least)
        return
    commit_group(pipeline.kafka, pipeline.group, least)
    failpoint(GROUP)


def _states(pipeline: Pipeline) -> list[CommittedState] | None:
    """The states of all tables; None where one has no batch yet, or cannot be read now: the next run tries again.

    A table that does not answer keeps the others waiting for a moment, and is not asked again soon.
    """
    states, silent = [], pipeline.silent_until
    for destination in pipeline.destinations():
        name, now = destination.name, time.monotonic()
        try:
            if now < silent.get(name, 0.0):
                raise Unavailable("it did not answer a short while ago", where=name)
            state = with_timeout(_PATIENCE, name, destination.committed)
        except BatchmergeError as problem:
            if now >= silent.get(name, 0.0):
                silent[name] = time.monotonic() + _AGAIN
            _LOG.warning("the consumer group waits for %s: %s", name, problem)
            return None
        if state is None:
            return None
        states.append(state)
    return states


def _quietly(pipeline: Pipeline, role: str, who: str, work: Callable[[], None]) -> bool:
    """True if it was done in time; else nobody uses the role any more."""
    if pipeline.events is None:
        done = quietly(pipeline.spec.control, who, work)
        if not done:
            pipeline.roles.pop(role, None)
        return done
    work()  # nothing is sent here
    return True
