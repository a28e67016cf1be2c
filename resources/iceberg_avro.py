"""What pyiceberg works out again for each manifest and list of manifests, remembered: schemas, readers and writers.

They follow from schemas that all of them have in common, and take ten times as long as the few entries of one.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import lru_cache
from threading import Lock
from typing import Any

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
    """A function of schemas, which never change, and of types: the same for the same objects."""
    known, lock = OrderedDict[tuple[object, ...], tuple[object, Any]](), Lock()

    def found(*values: object, **named: object) -> Any:
        key = (*_identities(values), *named, *_identities(named.values()))
        with lock:
            if key in known:
                known.move_to_end(key)
                return known[key][1]
        result = work(*values, **named)
        with lock:
            # With what it was made of, so that nothing else gets an identity of these.
            known[key] = ((values, named), result)
            if len(known) > _KEPT:
                known.popitem(last=False)
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
    """What of it writes the header of a file."""

    iceberg_to_avro = staticmethod(_by_identity(AvroSchemaConversion().iceberg_to_avro))


def _header_schema(header: file.AvroFileHeader) -> Schema:
    return _schema(header.meta[_SCHEMA]) if _SCHEMA in header.meta else _get_schema(header)


def _with_partition(writer: manifest.ManifestWriter, version: TableVersion) -> Schema:
    return _entry_schema(version, writer._spec.partition_type(writer._schema))


_get_schema = file.AvroFileHeader.get_schema
_INSTEAD: dict[tuple[object, str], object] = {
    (file.AvroFileHeader, "get_schema"): _header_schema,
    (file, "AvroSchemaConversion"): _Conversion,
    (manifest.ManifestWriter, "_with_partition"): _with_partition,
    **{
        (file, name): _by_identity(getattr(file, name))
        for name in ("construct_reader", "resolve_reader", "construct_writer", "resolve_writer")
    },
}
for (_where, _name), _new in _INSTEAD.items():
    setattr(_where, _name, _new)
