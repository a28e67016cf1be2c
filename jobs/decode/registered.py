"""Confluent's wire format: a zero byte, the schema's id (4 bytes, big-endian), then the record.

Source: Confluent's documentation of Schema Registry, "Wire format". The run fetches the schemas of a batch's ids
(`jobs.landing.registry_schemas`), so that workers need no access to the registry and no credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jobs.decode.base import Refused

SchemaType = Literal["AVRO", "PROTOBUF", "JSON"]
PREFIX_BYTES = 5

Ids = Mapping[str, frozenset[int]]
"""Ids of schemas by name of the registry."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A registry's schema of an id.

    Attributes:
        texts: the schemas that it refers to, each after those it needs, and itself at the end.
        names: the names by which it refers to them; its own is empty.
        descriptors: for Protobuf, the compiled file descriptor set.
        problem: why there are no descriptors.
    """

    id: int
    type: SchemaType
    texts: tuple[str, ...]
    names: tuple[str, ...] = ()
    descriptors: bytes = b""
    problem: str = ""


def split(record: bytes) -> tuple[int, bytes]:
    """The schema id and the rest. Raises Refused if the prefix is missing."""
    if len(record) < PREFIX_BYTES or record[0] != 0:
        raise Refused("undecodable", "the record does not begin with a zero byte and a schema id")
    return int.from_bytes(record[1:PREFIX_BYTES], "big"), record[PREFIX_BYTES:]


def known(schemas: Mapping[int, RegisteredSchema], schema_id: int, wanted: SchemaType) -> RegisteredSchema:
    """The schema of an id. Raises Refused if there is none, or if it has another type."""
    schema = schemas.get(schema_id)
    if schema is None:
        raise Refused("schema", f"schema id {schema_id} is not in the registry")
    if schema.type != wanted:
        raise Refused("schema", f"schema id {schema_id} is of type {schema.type}, expected {wanted}")
    return schema
