"""Remembers that dead letters were sent to the topic, since Kafka forgets the group with the position
(`jobs.events.pending`).

A property of the intermediate table, written once.
"""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.table.update import SetPropertiesUpdate

from jobs.iceberg.history import property_prefix
from jobs.landing.intermediate import IntermediateTable
from resources.errors import CommitFailed


def has_sent(place: IntermediateTable, role: str) -> bool:
    """Whether this role (the landing's, or a table's) has ever sent dead letters."""
    return _property(place, role) in place.catalog.require(place.identifier).metadata.properties


def note_first_sending(place: IntermediateTable, role: str) -> None:
    """Writes the property. If another commit prevents it, the next run writes it."""
    if not has_sent(place, role):
        with suppress(CommitFailed):
            table = place.catalog.require(place.identifier)
            place.catalog.commit(table, (), (SetPropertiesUpdate(updates={_property(place, role): "true"}),))


def _property(place: IntermediateTable, role: str) -> str:
    return f"{property_prefix(place.pipeline, 'main')}{role}-sent"
