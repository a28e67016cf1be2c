"""The schemas with which records were written, by the ids that the records name; the driver fetches them.

The pass that decodes a batch also reports its ids. It is repeated only if the registry has one that was not known yet;
known ids are kept with the intermediate table. Workers get schemas, not credentials. So a registry that is down stops
a batch before anything is published, an id that it does not have makes dead letters, and all workers agree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Refused
from jobs.decode.columns.reading import distinct_prefixes
from jobs.decode.registered import Ids, RegisteredSchema, SchemaType, split
from jobs.iceberg.table_commit import TableCommit
from jobs.iceberg.table_property import SCHEMA_IDS
from jobs.landing.encodings import encodings
from jobs.landing.framing import Framing
from jobs.landing.task_report import TaskReport, joined
from jobs.schema.protobuf import compiled
from jobs.spark.spark_tasks import in_arrow
from jobs.spec.source import Source
from resources.errors import ConfigurationError
from resources.kafka_records import header_column
from resources.stored_schema import Registry, SchemaId, StoredSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IDS = pa.schema([("registry", pa.string()), ("id", pa.string())])
# Ids are positive 32-bit integers.
_LARGEST = 2**31 - 1
# If records seem to have more different ids than this, they do not have the wire format.
_MOST = 10_000
# The most ids that are kept, the newest ones, so that a new run fetches few schemas; others cost a second pass.
_KEPT = 50

Schemas = Mapping[str, Mapping[SchemaId, RegisteredSchema]]
"""Schemas by id, by name of the registry."""


@dataclass(frozen=True)
class SchemaIds:
    """Finds schema ids in records; travels to Spark's workers.

    Attributes:
        registries: the registry of keys and of values, by topic; None: of all other topics.
        framings: of keys and of values, if they have schemas in a registry.
    """

    registries: Mapping[str, Mapping[str | None, str | None]]
    framings: Mapping[str, Framing] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source) -> SchemaIds | None:
        """For this source; None if its records have no schema ids."""
        if not source.registries:
            return None
        found = {part: encodings(source, part).items() for part in ("key", "value")}
        registries = {part: {topic: one.registry if one else None for topic, one in own} for part, own in found.items()}
        framings = {part: one for part in registries if (one := Framing.of(source, part))}
        return cls(registries, framings)

    def __call__(self, batch: pa.RecordBatch) -> Ids:
        """The ids in these records."""
        found: dict[str, frozenset[SchemaId]] = {}
        topics = batch.column("topic").cast(pa.string())
        for part, by_topic in self.registries.items():
            raw = self.framings[part].records(batch, part) if part in self.framings else batch.column(part)
            for topic, name in by_topic.items():
                if name is not None:
                    records = _of_topic(raw, topics, topic, [one for one in by_topic if one])
                    found[name] = found.get(name, frozenset()) | ids_in(records)
        return found

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The ids in a task's records, as rows of registry and id."""
        for batch in batches:
            rows = [{"registry": name, "id": str(one)} for name, ids in self(batch).items() for one in ids]
            yield pa.RecordBatch.from_pylist(rows, _IDS)


def _of_topic(records: pa.Array, topics: pa.Array, topic: str | None, others: list[str]) -> pa.Array:
    """The records of one topic, or (None) of all topics except `others`."""
    if topic is not None:
        return records.filter(pc.equal(topics, topic))
    return records.filter(pc.invert(pc.is_in(topics, value_set=pa.array(others, pa.string())))) if others else records


def ids_in(records: pa.Array) -> frozenset[SchemaId]:
    """The ids that records name."""
    found = (_id(prefix) for prefix in distinct_prefixes(records))
    return frozenset(islice((one for one in found if one is not None), _MOST))


def _id(prefix: bytes) -> SchemaId | None:
    try:
        found, _ = split(prefix)
    except Refused:
        return None
    return found if isinstance(found, str) or 0 < found <= _LARGEST else None


@dataclass(frozen=True)
class Registries:
    """The registries that a pipeline names."""

    by_name: Mapping[str, Registry] = field(default_factory=dict)

    def schemas_of(self, source: Source, records: DataFrame) -> Schemas:
        """The schemas of all ids in these records.

        Raises:
            Unavailable: a registry does not answer. ConfigurationError: it refuses the credentials.
        """
        where = SchemaIds.of(source)
        if where is None:
            return {}
        headers = header_column(records.columns)
        columns = records.select("topic", "key", "value", *([headers] if headers else []))
        rows = in_arrow(columns, where.rows, _IDS).distinct().limit(_MOST)
        found: dict[str, set[SchemaId]] = {name: set() for name in source.registries}
        for row in rows.collect():
            written: str = row["id"]
            found[row["registry"]].add(int(written) if written.isdecimal() else written)
        return {name: self.of_ids(name, ids) for name, ids in found.items()}

    def read(
        self, source: Source, topics: Collection[str], known: Ids, once: Callable[[Schemas], list[TaskReport]]
    ) -> list[TaskReport]:
        """Has records read, and read again if they have ids that were not known yet and that the registries have.

        Args:
            topics: of the records.
            known: ids of earlier batches; if there are none, the topics' newest schemas are used first.
            once: reads the records with these schemas.

        Raises:
            Unavailable: a registry does not answer. ConfigurationError: it refuses the credentials.
        """
        schemas = {
            name: self.of_ids(name, known[name]) if known.get(name) else self._newest(name, source, topics)
            for name in self.by_name
        }
        reports = once(schemas)
        met = joined(report.schema_ids for report in reports)
        new = {name: self.of_ids(name, ids.difference(schemas[name])) for name, ids in met.items()}
        if any(new.values()):
            schemas = {name: {**found, **new.get(name, {})} for name, found in schemas.items()}
            reports = once(schemas)
        there = {name: met[name].intersection(schemas[name]) for name in met}
        return [replace(report, schema_ids=there) for report in reports]

    def _newest(self, name: str, source: Source, topics: Collection[str]) -> dict[SchemaId, RegisteredSchema]:
        """The newest schemas of the subjects `<topic>-key` or `<topic>-value`: the default naming strategy."""
        where = SchemaIds.of(source)
        wanted = [
            f"{topic}-{column}"
            for column, by_topic in (where.registries if where else {}).items()
            for topic in topics
            if by_topic.get(topic, by_topic[None]) == name
        ]
        return _registered(self.by_name[name].latest(subject) for subject in wanted)

    def of_ids(self, name: str, ids: Iterable[SchemaId]) -> dict[SchemaId, RegisteredSchema]:
        """The schemas of these ids that the registry has; raises as `schemas_of` does."""
        return _registered(self.by_name[name].by_id(i) for i in sorted(ids, key=str))


def _registered(found: Iterable[StoredSchema | None]) -> dict[SchemaId, RegisteredSchema]:
    by_id = dict[SchemaId, RegisteredSchema]()
    for stored in found:
        if stored:
            by_id[stored.id] = registered(stored)
            if stored.guid:
                by_id[stored.guid] = by_id[stored.id]
    return by_id


def registered(stored: StoredSchema) -> RegisteredSchema:
    """A registry's schema in the form for decoders; Protobuf is compiled here."""
    descriptors, problem = b"", ""
    try:
        descriptors = compiled(stored.texts, stored.names) if stored.type == "PROTOBUF" else b""
    except ConfigurationError as refused:
        problem = refused.what  # becomes the error of the records' dead letters
    kind: SchemaType = "PROTOBUF" if stored.type == "PROTOBUF" else "JSON" if stored.type == "JSON" else "AVRO"
    return RegisteredSchema(stored.id, kind, stored.texts, stored.names, descriptors, problem)


def known_ids(properties: Mapping[str, str], pipeline: str) -> Ids:
    """The ids in records of earlier batches, from the intermediate table's properties."""
    return {name: frozenset(ids) for name, ids in SCHEMA_IDS.read(properties, pipeline).items()}


def schema_id_properties(commit: TableCommit, met: Ids) -> dict[str, str]:
    """Returns the table property that keeps schema ids; empty if there are no new ones."""
    known = known_ids(commit.properties, commit.pipeline)
    all_ids = joined([known, met])
    if all_ids == known:
        return {}
    kept = {name: kept_ids(ids, met.get(name, frozenset())) for name, ids in all_ids.items()}
    return SCHEMA_IDS.written(kept, commit.pipeline)


def kept_ids(ids: Collection[SchemaId], met: Collection[SchemaId]) -> list[SchemaId]:
    """The ids that are kept. GUIDs do not say which are newer: those of the last batch are kept first."""
    guids = sorted((one in met, one) for one in ids if isinstance(one, str))
    numbers = sorted(one for one in ids if isinstance(one, int))
    return [*numbers[-_KEPT:], *(one for _, one in guids[-_KEPT:])]
