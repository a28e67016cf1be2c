"""Ids of schemas in records, and how often the records are read because of them."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

from jobs.decode.protobuf import RegisteredProtobuf
from jobs.landing.registry_schemas import Registries, SchemaIds, Schemas, kept_ids, registered
from jobs.landing.task_report import TaskReport
from jobs.spec.source import Source
from resources.schema_registry import SchemaRegistry
from resources.stored_schema import StoredSchema
from tests.kit.arrow import kafka_records, raw_values


class Known:
    """A registry of these ids; the newest of them is the subject's `t-value`."""

    def __init__(self, *ids: int) -> None:
        self.ids, self.asked = ids, list[int]()

    def by_id(self, schema_id: int) -> StoredSchema | None:
        self.asked.append(schema_id)
        return StoredSchema(schema_id, "AVRO", ('"string"',), ("",)) if schema_id in self.ids else None

    def latest(self, subject: str) -> StoredSchema | None:
        return self.by_id(self.ids[-1]) if subject == "t-value" else None


def encoded(schema_id: int, rest: bytes = b"x") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + rest


def test_ids_of_keys_and_values_by_topic() -> None:
    avro: dict[str, Any] = {"format": "avro", "registry": "one", "columns": {"id": "long"}}
    source = Source.model_validate(
        {
            "topics": ["t", "u", "v"],
            "key": avro,
            "value": avro,
            "per_topic": {"u": {"value": {"format": "avro", "registry": "two"}}, "v": {"value": {"format": "json"}}},
        }
    )
    found = SchemaIds.of(source)
    assert found is not None
    pairs = [(encoded(1), encoded(2)), (None, encoded(3)), (encoded(1), encoded(4)), (b"\0\0", b"plain"), (None, None)]
    places = [(topic, 0, n) for n, topic in enumerate("tuvtt")]
    assert found(kafka_records(*pairs, places=places)) == {"one": {1, 2}, "two": {3}}
    (rows,) = found.rows([kafka_records(*pairs, places=places)])
    assert sorted(map(tuple, (row.values() for row in rows.to_pylist()))) == [("one", "1"), ("one", "2"), ("two", "3")]
    assert SchemaIds.of(Source.model_validate({"topics": ["t"], "value": {"columns": {"id": "long"}}})) is None


def test_records_are_read_again_only_for_a_schema_that_is_new() -> None:
    registry = Known(5, 6)
    registries = Registries({"one": cast(SchemaRegistry, registry)})
    passes = list[list[int]]()
    source = Source.model_validate(
        {"topics": ["t", "u"], "value": {"format": "avro", "registry": "one", "columns": {"id": "long"}}}
    )

    def meeting(*ids: int, known: tuple[int, ...] = (5,), topic: str = "t") -> list[list[int]]:
        passes.clear()

        def once(schemas: Schemas) -> list[TaskReport]:
            passes.append(sorted(map(int, schemas["one"])))
            return [TaskReport(schema_ids={"one": frozenset(ids)}), TaskReport()]

        reports = registries.read(source, {topic}, {"one": frozenset(known)}, once)
        assert reports[0].schema_ids["one"] <= {5, 6}
        return passes

    assert meeting(5) == [[5]]
    assert meeting(5, 6) == [[5], [5, 6]]
    assert meeting(5, 99) == [[5]], "one that no registry knows makes dead letters at once"
    assert registry.asked[-1] == 99
    assert meeting(6, known=()) == [[6]], "the newest schema of a topic is tried where none is known"
    assert meeting(5, 6, known=()) == [[6], [5, 6]]
    assert meeting(6, known=(), topic="u") == [[], [6]]


def test_ids_that_are_kept() -> None:
    """The largest ids are the newest; of GUIDs nobody knows, so that those of the last batch come first."""
    guids = [f"{n:08x}-0000-0000-0000-000000000000" for n in range(60)]
    kept = kept_ids({*range(1, 61), *guids}, {3, *guids[:5]})
    assert kept == [*range(11, 61), *guids[15:], *guids[:5]]
    assert kept_ids({7, 10, 9}, {7}) == [7, 9, 10]


@pytest.mark.parametrize(
    "name", ["confluent/meta.proto", "confluent/type/decimal.proto", "google/type/date.proto", "schema.proto"]
)
def test_protobuf_may_import_what_clients_bring_along(name: str) -> None:
    imports = " ".join(f'import "{one}";' for one in sorted({name, "confluent/meta.proto"}))
    own = f"""syntax = "proto3"; {imports}
        message A {{ int64 id = 1 [(confluent.field_meta).doc = "x"]; }}"""
    others = ('syntax = "proto3"; message Other { int64 x = 1; }',) if name == "schema.proto" else ()
    stored = StoredSchema(1, "PROTOBUF", (*others, own), (*(name for _ in others), ""))
    decoder = RegisteredProtobuf(pa.struct([("id", pa.int64())]), {1: registered(stored)})
    decoded = decoder.decode(raw_values(encoded(1, b"\0\x08\x05")))
    assert (decoded.errors, decoded.values.to_pylist()) == ({}, [{"id": 5}])


def test_dead_letters_say_why_protobuf_does_not_compile() -> None:
    text = 'syntax = "proto3"; import "nowhere.proto"; message A { int64 id = 1; }'
    schema = registered(StoredSchema(1, "PROTOBUF", (text,), ("",)))
    decoded = RegisteredProtobuf(pa.struct([("id", pa.int64())]), {1: schema}).decode(raw_values(encoded(1, b"\0")))
    assert decoded.errors[0].message.startswith(
        "schema id 1: the Protobuf compiler does not accept the schema: nowhere"
    )
