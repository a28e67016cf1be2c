"""Kafka's metadata of a record as columns of tables (`tables[].metadata_columns`). Pure.

Each entry is the metadata, and ` as <name>` if the column has another name. Metadata other than the record's
coordinates is landed in the struct ``kafka`` only if a table needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from resources.kafka_records import INSTANT

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

HEADER = "header:"
# The RECORD of Kafka Connect's BigQuery sinks (`kafkaDataFieldName`).
RECORD = pa.struct([("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64()), ("insertTime", INSTANT)])
_OF_EVERY_RECORD = {
    "topic": (pa.string(), ("kafka", "topic")),
    "partition": (pa.int32(), ("kafka", "partition")),
    "offset": (pa.int64(), ("kafka", "offset")),
    "timestamp": (INSTANT, ("kafka", "timestamp")),
    "batch": (pa.int64(), ("batchNumber",)),
    "op": (pa.string(), ("op",)),
}
_ON_REQUEST = {"key": pa.string(), "headers": pa.string(), "record": RECORD}
# What tells a record from all others.
COORDINATES = ("topic", "partition", "offset")
NAMES = (*_OF_EVERY_RECORD, *_ON_REQUEST)
# What tells rows apart has a fixed name; other metadata can have another one.
_FIXED = "topic|partition|offset|timestamp|batch"
PATTERN = rf"(?:{_FIXED}|(?:op|{'|'.join(_ON_REQUEST)}|{HEADER}\S+)(?: as [A-Za-z_]\w*)?)"


@dataclass(frozen=True)
class Metadata:
    """One column.

    Attributes:
        what: the metadata, as in the pipeline file without the name.
        column: the column's name; a kind may have to change it.
        path: in a landed row.
    """

    what: str
    column: str
    type: pa.DataType
    path: tuple[str, ...]

    @classmethod
    def of(cls, written: str) -> Metadata:
        """An entry of `metadata_columns`."""
        what, _, name = written.partition(" as ")
        plain = what.replace(HEADER, "header_", 1) if what.startswith(HEADER) else what
        column = name or "_" + re.sub(r"\W", "_", plain)
        if what in _OF_EVERY_RECORD:
            return cls(what, column, *_OF_EVERY_RECORD[what])
        # Headers may have any names; the fields' names have to be distinct.
        field = re.sub(r"\W", lambda odd: f"_x{ord(odd[0]):x}_", plain)
        return cls(what, column, _ON_REQUEST.get(what, pa.string()), ("kafka", field))

    @property
    def needs_headers(self) -> bool:
        return self.what == "headers" or self.what.startswith(HEADER)


def metadata_of(columns: Sequence[str]) -> list[Metadata]:
    return [Metadata.of(written) for written in columns]


def landed_on_request(spec: PipelineSpec) -> Iterator[Metadata]:
    """The metadata that tables need and that is not landed by default; each once."""
    wanted = {m.path: m for table in spec.tables for m in metadata_of(table.metadata_columns)}
    yield from (m for m in wanted.values() if m.what not in _OF_EVERY_RECORD)


def reads_headers(spec: PipelineSpec) -> bool:
    """Whether the records' headers are needed: by the transform, or as columns."""
    resolved = spec.source.resolved
    return bool(resolved and "_headers" in resolved.reads) or any(m.needs_headers for m in landed_on_request(spec))
