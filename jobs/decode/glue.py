"""AWS Glue's wire format: a three, how the value is compressed, the id of the schema's version (16 bytes), the value.

Decoders know records that are not compressed. For Protobuf the value begins with the number of the message among all of
the schema, by their full names.

Source: awslabs/aws-glue-schema-registry, `GlueSchemaRegistryDeserializerDataParser` and `MessageIndexFinder`.
"""

from __future__ import annotations

import zlib

import pyarrow as pa
import pyarrow.compute as pc

VERSION = 3
GLUE_BYTES = 18
_PLAIN, COMPRESSED = b"\x03\x00", b"\x03\x05"
# A record that is larger when it is uncompressed is refused.
_MOST_BYTES = 128 << 20


def uncompressed(raw: pa.Array) -> pa.Array:
    """The records, those that are compressed in this format without it. One that cannot be read stays as it is."""
    compressed = pc.equal(pc.binary_slice(raw, 0, 2), pa.scalar(COMPRESSED, raw.type))
    if not pc.any(compressed).as_py():
        return raw
    rows = pc.indices_nonzero(compressed)
    values = pa.array(map(_uncompressed, raw.take(rows).to_pylist()), raw.type)
    return pc.replace_with_mask(raw, pc.fill_null(compressed, False), values)


def _uncompressed(record: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        value = unpacking.decompress(record[GLUE_BYTES:], _MOST_BYTES)
    except zlib.error:
        return record
    return _PLAIN + record[2:GLUE_BYTES] + value if unpacking.eof and not unpacking.unused_data else record
