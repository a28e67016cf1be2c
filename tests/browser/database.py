"""A database of a hundred tables, captured into a topic each: one pipeline with a continuous run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.members.known_topics import remember
from resources.connections import Connections
from tests.kit.records import bootstrap
from tests.kit.waiting import PATIENCE

NAME = "shop"
_AREAS = ("crm", "sales", "stock", "billing", "shipping", "returns", "web", "loyalty", "finance", "staff")
_THINGS = ("accounts", "addresses", "events", "items", "notes", "orders", "prices", "rules", "states", "tags")
TABLES = [f"{area}_{thing}" for area in _AREAS for thing in _THINGS]
DOCUMENT: Mapping[str, object] = {
    "description": "All tables of the shop's database, as they are now.",
    "source": {
        "pattern": rf"{NAME}\.public\.(?P<table>.+)",
        "for_each": "topic",
        "key": {"format": "json", "columns": {"id": "long"}},
        "value": {"format": "json", "columns": {"id": "long", "name": "string"}},
    },
    "changes": {"key": {"columns": ["id"]}},
    "tables": [{"kind": "iceberg", "table": f"{NAME}.{{table}}", "mode": "upsert"}],
    "control": {"enabled": False},
    "interval": "10s",
}


def make_topics(connections: Connections, tables: Sequence[str] = TABLES) -> None:
    """One of a partition for each table, known to the pipeline, with a row."""
    names = [f"{NAME}.public.{table}" for table in tables]
    admin = AdminClient({"bootstrap.servers": bootstrap(connections)})
    for done in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        done.result(timeout=PATIENCE)
    producer = Producer({"bootstrap.servers": bootstrap(connections)})
    for name in names:
        producer.produce(name, json.dumps({"id": 1, "name": "first"}), key=json.dumps({"id": 1}))
    assert producer.flush(PATIENCE) == 0
    remember(NAME, names)
