"""Whether dead letters were ever sent to the topic: Kafka forgets the group that says how far (`jobs.events.pending`).

A property of the intermediate table, written once.
"""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.table.update import SetPropertiesUpdate

from jobs.iceberg.history import property_prefix
from jobs.landing.intermediate import IntermediateTable
from resources.errors import CommitFailed


def has_sent(place: IntermediateTable, role: str) -> bool:
    """Whether this role (the landing's, or one of each table) has ever sent some."""
    return _property(place, role) in place.catalog.require(place.identifier).metadata.properties


def note_first_sending(place: IntermediateTable, role: str) -> None:
    """Somebody who changes the table at the same time is no harm: the next run notes it."""
    if not has_sent(place, role):
        with suppress(CommitFailed):
            table = place.catalog.require(place.identifier)
            place.catalog.commit(table, (), (SetPropertiesUpdate(updates={_property(place, role): "true"}),))


def _property(place: IntermediateTable, role: str) -> str:
    return f"{property_prefix(place.pipeline, 'main')}{role}-sent"
