"""Records as Confluent's own serializers write them: with the schema's id in the record, or its GUID in a header."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

Headers = list[tuple[str, bytes]]


def _without_oauth() -> None:
    """Confluent's client imports authlib, which is not among our packages; it needs it for OAuth alone."""
    if "authlib" not in sys.modules and find_spec("authlib") is None:
        for name in ("authlib", "authlib.integrations", "authlib.integrations.httpx_client"):
            made: Any = sys.modules.setdefault(name, ModuleType(name))
            made.OAuth2Client = made.AsyncOAuth2Client = None


def registry_client(url: str) -> Any:
    """Confluent's client of the registry at this address."""
    _without_oauth()
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient({"url": url})


def serialized(
    client: Any, schema: Any, value: Any, topic: str = "t", part: str = "value", in_header: bool = True
) -> tuple[bytes, Headers]:
    """The record's key or value (`part`) and its headers.

    Args:
        schema: of Avro or JSON (an object with `properties`); it is registered. None: the value is a Protobuf message,
            whose schema the registry has.
    """
    _without_oauth()
    from confluent_kafka.schema_registry import (
        header_schema_id_serializer,
        prefix_schema_id_serializer,
        topic_subject_name_strategy,
    )
    from confluent_kafka.serialization import SerializationContext

    headers: Headers = []
    options: dict[str, Any] = {
        "schema.id.serializer": header_schema_id_serializer if in_header else prefix_schema_id_serializer,
        "subject.name.strategy": topic_subject_name_strategy,
    }
    context: Any = SerializationContext
    made: bytes = _serializer(client, schema, value, options)(value, context(topic, part, headers))
    return made, headers


def _serializer(client: Any, schema: Any, value: Any, options: dict[str, Any]) -> Any:
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    if schema is None:
        return ProtobufSerializer(type(value), client, {**options, "auto.register.schemas": False})
    if "properties" in schema:
        return JSONSerializer(json.dumps(schema), client, conf=options)
    return AvroSerializer(client, json.dumps(schema), conf=options)
