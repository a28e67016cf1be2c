"""Flights as a stream of changes, in the order in which they happened, with some malformed records among them.

A flight is created a day before it is scheduled to leave, updated when it departs and when it arrives, and deleted at
the scheduled time when it is cancelled: by a tombstone and by a record with op ``d`` in turn. Each value is the whole
flight as it is then. The same arguments give the same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from resources.local.flights.columns import KEY, OP
from resources.local.flights.source import Flight, flights

# Stages of a flight. Changes at the same second are sorted by them.
_CREATED = 0
_DEPARTED = 1
_ARRIVED = 2
_CANCELLED = 3
_DAY = 86_400
EVERY = 100  # changes between two malformed records
MALFORMED = ("cut off", "text for a number", "key part missing", "no key")


@dataclass(frozen=True, slots=True)
class Record:
    """A Kafka record.

    Attributes:
        timestamp: milliseconds since 1970 UTC, when the change happened.
        route: what decides the partition: the flight's key, also where the record's own key is malformed.
        malformed: one of `MALFORMED`, or None for a change.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    route: bytes
    malformed: str | None = None


@dataclass(frozen=True)
class FlightChanges:
    """The changes of a month's flights, or of the year's (`month` None); iterate to get `Record`s."""

    month: int | None = 1

    @cached_property
    def flights(self) -> list[Flight]:
        return list(flights(self.month))

    @cached_property
    def changes(self) -> int:
        return len(self._moments)

    @cached_property
    def malformed(self) -> dict[str, int]:
        """How many malformed records of each kind are in the stream."""
        return dict(Counter(MALFORMED[number % len(MALFORMED)] for number in range(self.changes // EVERY)))

    def __len__(self) -> int:
        return self.changes + self.changes // EVERY

    def __iter__(self) -> Iterator[Record]:
        for number, (seconds, index, stage) in enumerate(self._moments, start=1):
            flight, timestamp = self.flights[index], 1000 * seconds
            key = _bytes(_key(flight))
            tombstone = stage == _CANCELLED and index in self._tombstones
            yield Record(key, None if tombstone else _bytes(_value(flight, stage)), timestamp, key)
            if number % EVERY == 0:
                kind = MALFORMED[(number // EVERY - 1) % len(MALFORMED)]
                yield Record(*_malformed(flight, stage, kind), timestamp, key, kind)

    @cached_property
    def _moments(self) -> list[tuple[int, int, int]]:
        """(seconds, index of the flight, stage), sorted."""
        moments = []
        for index, flight in enumerate(self.flights):
            moments.append((flight.scheduled - _DAY, index, _CREATED))
            if flight.departed is None:
                moments.append((flight.scheduled, index, _CANCELLED))
            else:
                moments.append((flight.departed, index, _DEPARTED))
            if flight.arrived is not None:
                moments.append((flight.arrived, index, _ARRIVED))
        return sorted(moments)

    @cached_property
    def _tombstones(self) -> frozenset[int]:
        cancelled = [index for _, index, stage in self._moments if stage == _CANCELLED]
        return frozenset(cancelled[::2])


def _key(flight: Flight) -> dict[str, object]:
    return {
        "carrier": flight.carrier,
        "flight": flight.flight,
        "origin": flight.origin,
        "scheduled": _instant(flight.scheduled),
    }


def _value(flight: Flight, stage: int) -> dict[str, object]:
    if stage == _CANCELLED:
        return {OP: "d", **_key(flight)}
    value = {
        OP: "c" if stage == _CREATED else "u",
        **_key(flight),
        "dest": flight.dest,
        "tailnum": flight.tailnum,
        "distance": flight.distance,
    }
    if stage >= _DEPARTED and flight.departed is not None:
        value |= {"departed": _instant(flight.departed), "dep_delay": flight.dep_delay}
    if stage >= _ARRIVED and flight.arrived is not None:
        value |= {"arrived": _instant(flight.arrived), "arr_delay": flight.arr_delay, "air_time": flight.air_time}
    return value


def _malformed(flight: Flight, stage: int, kind: str) -> tuple[bytes | None, bytes]:
    """Key and value of a malformed copy of a change. If it were applied, the table would stay right, or fail."""
    key, value = _key(flight), _value(flight, stage)
    if kind == "cut off":
        whole = _bytes(value)
        return _bytes(key), whole[: len(whole) // 2]
    if kind == "text for a number":
        return _bytes(key), _bytes({**value, "flight": "unknown"})
    if kind == "key part missing":
        del key[KEY[2]], value[KEY[2]]
        return _bytes(key), _bytes(value)
    return None, _bytes(value)


def _instant(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19] + "Z"


def _bytes(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
