"""A proposal for `source.key` and `source.value` of a topic, from a sample of its records. Nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import yaml

from jobs.decode.base import Refused
from jobs.decode.json_strict import parse_json
from jobs.decode.registered import PREFIX_BYTES, split
from jobs.infer.value_types import infer_json
from jobs.schema.avro import avro_wire
from jobs.schema.connect_schema import connect_wire
from jobs.schema.json_schema import json_schema_wire
from jobs.schema.protobuf import Messages, compiled, message_wire
from jobs.schema.wire import Wire, natural_fields
from jobs.spec.formats import columns_text
from resources.errors import ConfigurationError
from resources.schema_registry import SchemaRegistry, StoredSchema


@dataclass(frozen=True)
class Proposal:
    """What a pipeline file could say of a key or a value.

    Attributes:
        remarks: what a person should look at before approving.
    """

    document: dict[str, Any]
    remarks: list[str] = field(default_factory=list)

    def yaml(self, name: str) -> str:
        """The proposal as a part of `source`."""
        lines = [f"# {remark}" for remark in self.remarks]
        text = yaml.safe_dump({name: self.document}, sort_keys=False, allow_unicode=True, width=1000)
        return "\n".join([*lines, text.rstrip()])


def propose(records: list[bytes], registry: SchemaRegistry | None) -> Proposal | None:
    """Format and columns of these records; None where there is nothing to see.

    Raises:
        ConfigurationError: the records are in Confluent's wire format, and no registry is given or its schema has
        no columns. Unavailable: the registry does not answer.
    """
    if not records:
        return None
    if all(record[:1] == b"\x00" and len(record) >= PREFIX_BYTES for record in records):
        return _registered(records, registry)
    parsed, others = [], 0
    for record in records:
        try:
            parsed.append(parse_json(record, numbers=True))
        except Refused:
            others += 1
    if len(parsed) < others:
        return _opaque(records)
    remarks = [f"{others} of {len(records)} records are no JSON: they would be dead letters"] if others else []
    if all(isinstance(one, dict) and one.keys() == {"schema", "payload"} for one in parsed):
        return _connect(parsed, remarks)
    if not any(isinstance(one, dict) for one in parsed):
        return _opaque(records)
    fields, more = infer_json(parsed)
    seen = f"inferred from {len(parsed)} records: check types, and add `not null` where a record without it is bad"
    return Proposal({"format": "json", **_described(fields)}, [seen, *remarks, *more])


def _opaque(records: list[bytes]) -> Proposal:
    try:
        for record in records:
            record.decode()
    except UnicodeDecodeError:
        remark = "neither text nor in Confluent's wire format; for Avro or Protobuf name a `schema_file`"
        return Proposal({"format": "bytes", "columns": {"value": "binary"}}, [remark])
    return Proposal({"format": "string", "columns": {"value": "string"}})


def _connect(parsed: list[dict[str, Any]], remarks: list[str]) -> Proposal:
    newest = next((one["schema"] for one in reversed(parsed) if one["schema"]), None)
    if newest is None:
        raise ConfigurationError("no record has a schema beside its payload", remedy="declare the columns by hand")
    return Proposal(
        {"format": "connect_json", **_described(_fields(connect_wire(newest)))},
        ["from the schema of the newest record", *remarks],
    )


def _registered(records: list[bytes], registry: SchemaRegistry | None) -> Proposal:
    if registry is None:
        raise ConfigurationError(
            "the records are in Confluent's wire format", remedy="name their registry's connection: --registry NAME"
        )
    ids = Counter(split(record)[0] for record in records)
    newest = max(ids)
    stored = registry.by_id(newest)
    if stored is None:
        raise ConfigurationError(
            f"schema id {newest} is not in the registry", where=registry.name, remedy="name the right registry"
        )
    document = {"format": _FORMATS[stored.type], "registry": registry.name}
    remark = f"from schema id {newest}; ids in the sample: {', '.join(f'{i} ({n})' for i, n in sorted(ids.items()))}"
    return Proposal({**document, **_described(_fields(_wire(stored)))}, [remark])


def _described(fields: list[pa.Field]) -> dict[str, Any]:
    """Columns, and the envelope that they seem to be."""
    kinds = {f.name: f.type for f in fields}
    kind = _envelope(kinds)
    if kind is None:
        return {"columns": columns_text(fields)}
    if kind == "debezium_flat":
        return {"envelope": kind, "columns": columns_text([f for f in fields if not f.name.startswith("__")])}
    row = kinds["data" if kind == "dms" else "after"]
    columns = columns_text(list(row)) if pa.types.is_struct(row) else {"_id": "string"}
    return {"envelope": kind, "columns": columns}


def _envelope(kinds: Mapping[str, pa.DataType]) -> str | None:
    if {"op", "after", "source"} <= kinds.keys():
        return "debezium" if pa.types.is_struct(kinds["after"]) else "mongo"
    if {"__op", "__deleted"} & kinds.keys():
        return "debezium_flat"
    metadata = kinds.get("metadata")
    is_dms = metadata is not None and pa.types.is_struct(metadata) and "operation" in metadata.names
    return "dms" if is_dms and pa.types.is_struct(kinds.get("data", pa.null())) else None


_FORMATS = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json"}


def _wire(stored: StoredSchema) -> Wire:
    if stored.type == "PROTOBUF":
        return message_wire(Messages(compiled(stored.texts, stored.names)).at((0,)))
    if stored.type == "JSON":
        return json_schema_wire(dict(parse_json(stored.texts[-1].encode(), numbers=True)))
    return avro_wire(stored.texts)


def _fields(wire: Wire) -> list[pa.Field]:
    return natural_fields(wire if wire.kind == "record" else Wire("record", fields=(("value", wire),)))
