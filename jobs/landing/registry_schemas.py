"""The schemas that the records of a batch were written with, looked up before the batch is landed.

A first pass over the batch's ranges collects the schema ids, which the driver looks up; the workers get schemas, not
credentials. So a registry that is down stops a batch before anything of it is written, an id that it does not know
makes dead letters, and both are the same for all workers. The pass reads no more than five bytes of each record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.decode.registered import PREFIX_BYTES, RegisteredSchema, SchemaType
from jobs.schema.protobuf import compiled
from jobs.spec.formats import Encoding
from jobs.spec.source import Source
from resources.errors import ConfigurationError
from resources.schema_registry import SchemaRegistry, StoredSchema

# Ids are positive 32-bit numbers; what looks like more different ids than this is no wire format.
_LARGEST, _MOST = 2**31 - 1, 10_000

Schemas = Mapping[str, Mapping[int, RegisteredSchema]]
"""Name of a registry to id to schema."""


@dataclass(frozen=True)
class Registries:
    """The registries that a pipeline names."""

    by_name: Mapping[str, SchemaRegistry] = field(default_factory=dict)

    def schemas_of(self, source: Source, records: DataFrame) -> Schemas:
        """The schemas of all ids in these records.

        Raises:
            Unavailable: a registry does not answer. ConfigurationError: it refuses the credentials.
        """
        return {name: self.of_ids(name, ids) for name, ids in self._ids(source, records).items()}

    def of_ids(self, name: str, ids: Iterable[int]) -> dict[int, RegisteredSchema]:
        """Those of one registry that it knows; raises as `schemas_of` does."""
        return {i: schema for i in sorted(ids) if (schema := self._lookup(name, i))}

    def _ids(self, source: Source, records: DataFrame) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {name: set() for name in source.registries}
        for column in ("key", "value"):
            own: Encoding | None = getattr(source, column)
            others = {t: getattr(e, column) for t, e in source.per_topic.items() if getattr(e, column)}
            names = {e.registry for e in (own, *others.values()) if e and e.registry}
            if not names:
                continue
            prefix = F.hex(F.substring(column, 1, PREFIX_BYTES))
            rows = records.select("topic", prefix.alias("prefix")).where(F.col("prefix").startswith("00"))
            for row in rows.distinct().limit(_MOST).collect():
                encoding = others.get(row["topic"], own)
                schema_id = int(row["prefix"], 16) if len(row["prefix"]) == 2 * PREFIX_BYTES else 0
                if encoding and encoding.registry and 0 < schema_id <= _LARGEST:
                    found[encoding.registry].add(schema_id)
        return found

    def _lookup(self, name: str, schema_id: int) -> RegisteredSchema | None:
        stored = self.by_name[name].by_id(schema_id)
        return registered(stored) if stored else None


def registered(stored: StoredSchema) -> RegisteredSchema:
    """A registry's schema as decoders take it; Protobuf is compiled here."""
    try:
        descriptors = compiled(stored.texts, stored.names) if stored.type == "PROTOBUF" else b""
    except ConfigurationError:
        descriptors = b""  # records of it become dead letters: no message is found in it
    kind: SchemaType = "PROTOBUF" if stored.type == "PROTOBUF" else "JSON" if stored.type == "JSON" else "AVRO"
    return RegisteredSchema(stored.id, kind, stored.texts, stored.names, descriptors)
