"""How records name the schema by which they were written, in Confluent's two forms and in AWS Glue's:

- The record begins with a zero byte and the schema's id (4 bytes, big-endian).
- A header has a one and the schema's GUID (16 bytes), and the record has only the value.
- The record begins as `jobs.decode.glue` says.

For Protobuf, what tells the message follows the id or the GUID. Decoders expect all of it in front of the record, where
`jobs.landing.framing` puts what a header says. The run fetches the schemas that a batch names
(`jobs.landing.registry_schemas`), so that workers need no access to the registry and no credentials.

Sources: Confluent's documentation of Schema Registry, "Wire format"; `SchemaId` and `DualSchemaIdDeserializer` of its
clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from jobs.decode import glue
from jobs.decode.base import Refused
from resources.stored_schema import SchemaId

SchemaType = Literal["AVRO", "PROTOBUF", "JSON"]

Ids = Mapping[str, frozenset[SchemaId]]
"""Ids of schemas by name of the registry."""

MessageIndex = tuple[int, ...] | int
"""A Protobuf message: Confluent's indexes, outermost first; or its number among all messages in the order of names."""

_ID, _GUID = 0, 1
# The bytes with an id; so many bytes of a record are needed to tell its schema from others.
LEAST_BYTES = 5
GUID_BYTES = 17
# The number of bytes that name the schema, by the first of them.
_SIZES = {_ID: LEAST_BYTES, _GUID: GUID_BYTES, glue.VERSION: glue.GLUE_BYTES}
# What stands for a header that names no schema.
_NO_ID = b"\xff"


@dataclass(frozen=True)
class RegisteredSchema:
    """A registry's schema of an id.

    Attributes:
        texts: the schemas that it refers to, each after those it needs, and itself at the end.
        names: the names by which it refers to them; its own is empty.
        descriptors: for Protobuf, the compiled file descriptor set.
        problem: why there are no descriptors.
    """

    id: SchemaId
    type: SchemaType
    texts: tuple[str, ...]
    names: tuple[str, ...] = ()
    descriptors: bytes = b""
    problem: str = ""


def prefix_size(record: bytes) -> int:
    """The number of bytes that name the schema, by the first bytes of a record; 0: it names none."""
    if not record or (record[0] == glue.VERSION and record[1:2] != b"\0"):  # in Glue's form: it is still compressed
        return 0
    return _SIZES.get(record[0], 0)


def split(record: bytes) -> tuple[SchemaId, int]:
    """The schema's id, and where the rest begins. Raises Refused if the record names no schema."""
    size = prefix_size(record)
    if record[:2] == glue.COMPRESSED:
        raise Refused("undecodable", "the record cannot be uncompressed")
    if not size or len(record) < size:
        raise Refused("undecodable", "the record names no schema, neither in its first bytes nor in a header")
    if record[0] == _ID:
        return int.from_bytes(record[1:size], "big"), size
    return str(UUID(bytes=record[size - 16 : size])), size


def message_index(record: bytes, at: int) -> tuple[MessageIndex, int]:
    """What tells the Protobuf message of a record that names a schema, and where that ends."""
    return _number(record, at) if record[0] == glue.VERSION else message_indexes(record, at)


def message_indexes(record: bytes, at: int = 0) -> tuple[tuple[int, ...], int]:
    """Confluent's indexes of a message that begin there, and where they end.

    The number of indexes, then the indexes, all as zigzag variable-length integers; a single zero means [0].
    """
    count, at = _zigzag(record, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= 32:
        raise Refused("undecodable", "the record has no message indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(record, at)
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number, at = _number(data, at)
    return (number >> 1) ^ -(number & 1), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer, and where it ends."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 35:
            raise Refused("undecodable", "the record has no message indexes")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def prefix_of(header: bytes, is_protobuf: bool) -> bytes:
    """What stands in front of a record with this header. Like Confluent's clients it leaves out bytes that follow."""
    if not header or header[0] not in (_ID, _GUID):
        return _NO_ID
    try:
        _, size = split(header)
        if is_protobuf:
            _, size = message_indexes(header, size)
    except Refused:
        return _NO_ID
    return header[:size]


def known(schemas: Mapping[SchemaId, RegisteredSchema], schema_id: SchemaId, wanted: SchemaType) -> RegisteredSchema:
    """The schema of an id. Raises Refused if there is none, or if it has another type."""
    schema = schemas.get(schema_id)
    if schema is None:
        raise Refused("schema", f"{called(schema_id)} is not in the registry")
    if schema.type != wanted:
        raise Refused("schema", f"{called(schema_id)} is of type {schema.type}, expected {wanted}")
    return schema


def called(schema_id: SchemaId) -> str:
    """The id in messages."""
    return f"schema {'id' if isinstance(schema_id, int) else 'GUID'} {schema_id}"
