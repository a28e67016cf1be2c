"""Brings the parts of records whose schemas are in a registry into the form that decoders expect
(`jobs.decode.registered`). Dead letters keep record and headers as they were.

- Confluent's newer serializers can write the schema's GUID into a header instead of the record. Like its clients
  (`DualSchemaIdDeserializer`) we look there first. What the header says is put in front of the record.
- AWS Glue's may compress records, which are uncompressed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.glue import uncompressed
from jobs.decode.registered import prefix_of
from jobs.landing.encodings import encodings
from jobs.spec.source import Source
from resources.kafka_records import HEADERS, header_column

# By the part of the record that the schema is of.
NAMES = {"key": "__key_schema_id", "value": "__value_schema_id"}


def wanted_headers(source: Source) -> frozenset[str]:
    """The headers that are needed to decode records of this source."""
    return frozenset(name for part, name in NAMES.items() if Framing.of(source, part))


@dataclass(frozen=True)
class Framing:
    """Travels to Spark's workers.

    Attributes:
        formats: of records with schemas in a registry, by topic; empty: the schemas are in none. None: other topics.
    """

    formats: Mapping[str | None, str]

    @classmethod
    def of(cls, source: Source, part: str) -> Framing | None:
        """For a part of records (`key` or `value`); None if no schema of it is in a registry."""
        own = encodings(source, part).items()
        formats = {topic: one.format if one and one.registry else "" for topic, one in own}
        return cls(formats) if any(formats.values()) else None

    def records(self, batch: pa.RecordBatch, part: str) -> pa.Array:
        """The keys or values of these records, as decoders expect them."""
        raw, said = batch.column(part), last_headers(batch, NAMES[part])
        plain = uncompressed(raw)
        if said is None and plain is raw:
            return raw
        topics = batch.column("topic").cast(pa.string()).dictionary_encode()
        formats = [self.formats.get(topic, self.formats[None]) for topic in topics.dictionary.to_pylist()]
        for format in {*formats} - {""}:
            here = pa.array([one == format for one in formats], pa.bool_()).take(topics.indices)
            raw = pc.if_else(here, plain if said is None else _with_prefixes(plain, said, format), raw)
        return raw


def _with_prefixes(raw: pa.Array, said: pa.Array, format: str) -> pa.Array:
    """The records, each behind what its header says; those without a header as they are."""
    found = said.dictionary_encode()
    prefixes = [prefix_of(one, format == "protobuf") for one in found.dictionary.to_pylist()]
    before = pa.array(prefixes, raw.type).take(found.indices)
    return pc.coalesce(pc.binary_join_element_wise(before, raw, pa.scalar(b"", raw.type)), raw)


def last_headers(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """For each record the value of its last header of this name, or null; None if none of them has one."""
    column = header_column(batch.schema.names)
    if column is None:
        return None
    headers = batch.column(column).cast(HEADERS)
    all_headers, rows = pc.list_flatten(headers), pc.list_parent_indices(headers)
    of_name = pc.equal(pc.struct_field(all_headers, "key"), name)
    if not pc.any(of_name).as_py():
        return None
    values, rows = pc.struct_field(all_headers, "value").filter(of_name), rows.filter(of_name).to_numpy()
    places = np.full(batch.num_rows, -1, np.int64)
    places[rows] = np.arange(len(rows))  # of several the last one stays
    return values.take(pa.array(places, mask=places < 0))
