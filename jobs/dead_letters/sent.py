"""Remembers that dead letters were sent to the topic, since Kafka forgets the group with the position
(`jobs.events.pending`).

A property of the intermediate table, written once.
"""

from __future__ import annotations

from contextlib import suppress

from jobs.iceberg.table_property import dead_letters_sent
from jobs.landing.intermediate import IntermediateTable
from resources.errors import CommitFailed


def has_sent(place: IntermediateTable, role: str) -> bool:
    """Whether this role (the landing's, or a table's) has ever sent dead letters."""
    properties = place.catalog.require(place.identifier).metadata.properties
    return dead_letters_sent(role).read(properties, place.pipeline)


def note_first_sending(place: IntermediateTable, role: str) -> None:
    """Writes the property. If another commit prevents it, the next run writes it."""
    if not has_sent(place, role):
        with suppress(CommitFailed):
            sent = dead_letters_sent(role).written(True, place.pipeline)
            place.keep(place.catalog.require(place.identifier), sent)
