"""The same varied records (`_records`) in every format that has a schema, and what a pipeline file says of each."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pyarrow as pa

from jobs.decode.base import Decoder
from jobs.decode.decoders import Schemas, decoder_for
from jobs.decode.envelope import Enveloped
from jobs.decode.envelope_shape import EnvelopeRules
from jobs.decode.registered import RegisteredSchema, SchemaType
from jobs.schema.protobuf import Messages, compiled, message_class
from tests.benchmarks._records import COLUMNS, as_json
from tests.kit.arrow import row_type

_AVRO = {"long": "long", "double": "double", "string": "string"}
_CONNECT = {"long": "int64", "double": "double", "string": "string"}
_PROTO = {"long": "int64", "double": "double", "string": "string"}
_SOURCE = {"version": "3.7", "connector": "postgresql", "name": "shop", "ts_ms": 1_767_225_600_000, "db": "shop",
           "schema": "public", "table": "flights", "txId": 4711, "lsn": 123456789}  # fmt: skip


def _avro_record(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


_ROW = _avro_record("Row", {name: ["null", _AVRO[kind]] for name, kind in COLUMNS.items()})
_NAMES = {"version": "string", "connector": "string", "name": "string", "ts_ms": "long", "db": "string",
          "schema": "string", "table": "string", "txId": "long", "lsn": "long"}  # fmt: skip
_CHANGE = _avro_record(
    "Envelope",
    {
        "before": ["null", _ROW],
        "after": ["null", "Row"],
        "source": _avro_record("Source", _NAMES),
        "op": "string",
        "ts_ms": ["null", "long"],
    },
)
_PROTO_FIELDS = [f"optional {_PROTO[kind]} {name} = {n};" for n, (name, kind) in enumerate(COLUMNS.items(), start=1)]
_PROTO_TEXT = f'syntax = "proto3"; message Row {{ {" ".join(_PROTO_FIELDS)} }}'


def _connect_struct(fields: Mapping[str, str], **more: Any) -> dict[str, Any]:
    parts = [{"type": kind, "optional": True, "field": name} for name, kind in fields.items()]
    return {"type": "struct", "fields": parts, "optional": True, **more}


_CONNECT_ROW = _connect_struct({name: _CONNECT[kind] for name, kind in COLUMNS.items()}, name="shop.Value")
_CONNECT_CHANGE = {
    "type": "struct",
    "fields": [
        {**_CONNECT_ROW, "field": "before"},
        {**_CONNECT_ROW, "field": "after"},
        {**_connect_struct({n: _CONNECT[kind] for n, kind in _NAMES.items()}), "field": "source"},
        {"type": "string", "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ],
}


@dataclass(frozen=True)
class Encoded:
    """Records in one format; called with rows, it writes them.

    Attributes:
        name: as a table says it.
        format: of the pipeline file.
        type: of the registry's schema; empty: without a registry.
        change: each row is in Debezium's envelope.
        schema: the schema's text.
    """

    name: str
    format: str
    type: SchemaType | None = None
    change: bool = False
    schema: str = field(default="", repr=False)
    id: int = 1

    def __call__(self, rows: pa.Table) -> list[bytes]:
        prefix = b"\x00" + self.id.to_bytes(4, "big") if self.type else b""
        if self.type == "AVRO":
            return [prefix + one for one in self._avro(rows)]
        if self.type == "PROTOBUF":
            made = message_class(Messages(compiled((self.schema,), ("",))).named("Row"))
            return [prefix + b"\x00" + made(**row).SerializeToString() for row in rows.to_pylist()]
        head, tail = b"", b""
        if self.change:
            head = b'{"before":null,"after":'
            tail = b',"source":%s,"op":"c","ts_ms":1767225600000}' % json.dumps(_SOURCE, separators=(",", ":")).encode()
        if self.format == "connect_json":
            head, tail = b'{"schema":%s,"payload":%s' % (self.schema.encode(), head), tail + b"}"
        return [prefix + head + one + tail for one in as_json(rows)]

    def _avro(self, rows: pa.Table) -> Iterator[bytes]:
        schema = fastavro.parse_schema(json.loads(self.schema))
        for row in rows.to_pylist():
            change = {"before": None, "after": row, "source": _SOURCE, "op": "c", "ts_ms": 1_767_225_600_000}
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, schema, change if self.change else row)
            yield stream.getvalue()

    @property
    def value(self) -> dict[str, Any]:
        """Of the pipeline file."""
        registry = {"registry": "registry"} if self.type else {}
        envelope = {"envelope": {"kind": "debezium"}} if self.change else {}
        return {"format": self.format, "columns": COLUMNS, **registry, **envelope}

    def decoder(self) -> Decoder:
        descriptors = compiled((self.schema,), ("",)) if self.type == "PROTOBUF" else b""
        schemas: Schemas | None = None
        if self.type:
            schemas = {1: RegisteredSchema(1, self.type, (self.schema,), ("",), descriptors)}
        kind = row_type(COLUMNS)
        if not self.change:
            return decoder_for(self.format, kind, registered=schemas)
        rules = EnvelopeRules("debezium")
        return Enveloped(kind, rules, lambda of, watch: decoder_for(self.format, of, registered=schemas, watch=watch))


# Apicurio takes nothing for a JSON Schema that does not say so.
_JSON_SCHEMA = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
FORMATS = (
    Encoded("JSON", "json"),
    Encoded("JSON, registry", "json", "JSON", schema=_JSON_SCHEMA),
    Encoded("connect_json", "connect_json", schema=json.dumps(_CONNECT_ROW, separators=(",", ":"))),
    Encoded("Avro, registry", "avro", "AVRO", schema=json.dumps(_ROW)),
    Encoded("Protobuf, registry", "protobuf", "PROTOBUF", schema=_PROTO_TEXT),
    Encoded("Debezium, JSON", "json", change=True),
    Encoded("Debezium, connect_json", "connect_json", change=True,
            schema=json.dumps(_CONNECT_CHANGE, separators=(",", ":"))),
    Encoded("Debezium, Avro, registry", "avro", "AVRO", change=True, schema=json.dumps(_CHANGE)),
)  # fmt: skip
