"""Remembers the schemas, readers and writers that pyiceberg computes again for each manifest and manifest list, and
compresses these as Iceberg's own writers do.

They depend only on schemas, which the manifests of a table share. To compute them takes ten times as long as to read
the few entries of one manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from threading import Lock
from typing import Any

from cachetools import LRUCache
from pyiceberg import manifest
from pyiceberg.avro import file
from pyiceberg.schema import Schema
from pyiceberg.typedef import TableVersion
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

# Results that each function remembers.
_KEPT = 256
# Where the header of an Avro file has its schema.
_SCHEMA = "avro.schema"


def _by_identity(work: Callable[..., Any]) -> Callable[..., Any]:
    """Remembers the function's results, by the identity of its arguments: schemas and types never change."""
    known, lock = LRUCache[tuple[object, ...], tuple[object, Any]](_KEPT), Lock()

    def found(*values: object, **named: object) -> Any:
        key = (*_identities(values), *named, *_identities(named.values()))
        with lock:
            if key in known:
                return known[key][1]
        result = work(*values, **named)
        with lock:
            # Keep the arguments too, so that no other object gets their identity.
            known[key] = ((values, named), result)
        return result

    return found


def _identities(values: Any) -> Iterator[object]:
    for value in values:
        if isinstance(value, dict):
            yield tuple(value.items())
        else:
            yield value if isinstance(value, str) else id(value)


@lru_cache(_KEPT)
def _schema(text: str) -> Schema:
    return AvroSchemaConversion().avro_to_iceberg(json.loads(text))


@lru_cache(_KEPT)
def _entry_schema(version: TableVersion, partition: StructType) -> Schema:
    data_file = manifest.data_file_with_partition(partition_type=partition, format_version=version)
    return manifest.manifest_entry_schema_with_data_file(version, data_file)


class _Conversion:
    """Stands in for `AvroSchemaConversion` where the header of a file is written."""

    iceberg_to_avro = staticmethod(_by_identity(AvroSchemaConversion().iceberg_to_avro))


class _Compression:
    """Stands in for the names of codecs. pyiceberg (0.12) takes that of manifests from `write.avro.compression-codec`,
    which is for data files in Avro, and fails with those that it does not know (`uncompressed`, capitals)."""

    @staticmethod
    def get(_: str) -> str:
        return "deflate"


def _header_schema(header: file.AvroFileHeader) -> Schema:
    return _schema(header.meta[_SCHEMA]) if _SCHEMA in header.meta else _get_schema(header)


def _with_partition(writer: manifest.ManifestWriter, version: TableVersion) -> Schema:
    return _entry_schema(version, writer._spec.partition_type(writer._schema))


_get_schema = file.AvroFileHeader.get_schema
_INSTEAD: dict[tuple[object, str], object] = {
    (file.AvroFileHeader, "get_schema"): _header_schema,
    (file, "AvroSchemaConversion"): _Conversion,
    (file, "CODEC_MAPPING_ICEBERG_TO_AVRO"): _Compression,
    (manifest.ManifestWriter, "_with_partition"): _with_partition,
    **{
        (file, name): _by_identity(getattr(file, name))
        for name in ("construct_reader", "resolve_reader", "construct_writer", "resolve_writer")
    },
}
for (_where, _name), _new in _INSTEAD.items():
    setattr(_where, _name, _new)
