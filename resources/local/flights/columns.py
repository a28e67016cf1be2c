"""The columns of a flight, in the words of a pipeline file."""

from __future__ import annotations

# The table. Instants are UTC; delays are minutes against the schedule, air_time minutes, distance miles. A flight that
# has left has `departed`; one that has reached its destination has `arrived` (a diverted one has not).
TABLE_COLUMNS: dict[str, str] = {
    "carrier": "string not null",
    "flight": "int not null",
    "origin": "string not null",
    "scheduled": "timestamp not null",
    "dest": "string",
    "tailnum": "string",
    "distance": "int",
    "departed": "timestamp",
    "dep_delay": "int",
    "arrived": "timestamp",
    "arr_delay": "int",
    "air_time": "int",
}

KEY = ("carrier", "flight", "origin", "scheduled")

# A record's value: what happened (c created, u updated, d deleted), and the flight as it is now.
OP = "op"
