"""Proposes `source.key` and `source.value` of a topic, from a sample of its records. Changes nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from jobs.decode.base import Refused
from jobs.decode.extended_json import plain_text
from jobs.decode.json_strict import parse_json
from jobs.decode.registered import GUID_BYTES, called, split
from jobs.infer.schema_types import described_fields, string_instead, wire_of
from jobs.infer.trial import Trial, trial
from jobs.infer.value_types import infer_json
from jobs.landing.framing import NAMES, Framing, last_headers
from jobs.schema.connect import connect_wire
from jobs.spec.formats import columns_text
from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from jobs.decode.decoders import Schemas
    from resources.stored_schema import Registry, SchemaId

# Characters that no text has, but numbers in bytes have.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# Serializers of Kafka whose records all have this number of bytes.
_NUMBERS = {4: ("IntegerSerializer", "int"), 8: ("LongSerializer", "long")}


@dataclass(frozen=True)
class Proposal:
    """A proposal for a key or a value.

    Attributes:
        remarks: what a person should check before approving.
        trial: how many of the records fit.
    """

    document: dict[str, Any]
    remarks: list[str] = field(default_factory=list)
    trial: Trial = field(default_factory=lambda: Trial(0, {}))

    def yaml(self, name: str) -> str:
        """The proposal as a part of `source`."""
        remarks = [*self.trial.remarks, *self.remarks]
        # Names of fields are whatever records say.
        lines = [f"# {''.join(c if c.isprintable() else ' ' for c in remark)}" for remark in remarks]
        text = yaml.safe_dump({name: self.document}, sort_keys=False, allow_unicode=True, width=1000)
        return "\n".join([*lines, text.rstrip()])


def sampled(sample: pa.Table, part: str) -> tuple[list[bytes], bool]:
    """The keys or values of a sample, as decoders expect them, and whether headers name their schemas."""
    records, named_in_headers = list[bytes](), False
    for batch in sample.combine_chunks().to_batches():
        said = last_headers(batch, NAMES[part])
        # Only Protobuf has more than the id there.
        longest = 0 if said is None else pc.max(pc.binary_length(said)).as_py() or 0
        framing = Framing({None: "protobuf" if longest > GUID_BYTES else "avro"})
        records += framing.records(batch, part).drop_null().to_pylist()
        named_in_headers = named_in_headers or said is not None
    return records, named_in_headers


def propose(records: Sequence[bytes], registry: Registry | None, named_in_headers: bool = False) -> Proposal | None:
    """The proposed format and columns of these records; None without records.

    Args:
        named_in_headers: headers name their schemas (`sampled`).

    Raises:
        ConfigurationError: the records are in a registry's wire format, and no registry is given; or neither they nor
        their schema have fields. Unavailable: the registry does not answer.
    """
    if not records:
        return None
    schemas: Schemas | None = None
    if all(_has_schema_id(record, named_in_headers) for record in records):
        found, schemas = _registered(records, registry)
    else:
        found = _by_content(records)
    if not found.document["columns"]:
        raise ConfigurationError("the records are only empty objects", remedy="declare the columns by hand")
    return _tried(found, lambda document: trial(document, records, schemas))


def _tried(found: Proposal, tried: Callable[[dict[str, Any]], Trial]) -> Proposal:
    """The proposal, with decimals as text if the sample has numbers that fit no decimal (without a fixed precision)."""
    best = replace(found, trial=tried(found.document))
    for name, text in found.document["columns"].items():
        other = string_instead(text)
        if other is None or best.trial.fitting == best.trial.records:
            continue
        columns = {**best.document["columns"], name: other}
        again = tried({**best.document, "columns": columns})
        if again.fitting > best.trial.fitting:
            remark = f"{name}: numbers without a fixed precision, taken as string: not all fit {text}"
            best = Proposal({**best.document, "columns": columns}, [*best.remarks, remark], again)
    return best


def _by_content(records: Sequence[bytes]) -> Proposal:
    """The proposal for records that are not in a registry's wire format."""
    parsed = list(_parsed(records, numbers=False))
    if 2 * len(parsed) < len(records) or not any(isinstance(one, dict) for one in parsed):
        return _opaque(records)
    are_connect = all(isinstance(one, dict) and one.keys() == {"schema", "payload"} for one in parsed)
    if are_connect and (found := _connect(list(_parsed(records, numbers=True)))):
        return found
    objects = [one for one in parsed if isinstance(one, dict)]
    fields, more = infer_json(objects)
    kind = _envelope(fields)
    if kind in ("debezium", "dms", "mongo"):
        fields, more = infer_json(_rows(objects, kind))
    document = {"format": "json", **_described(kind, fields)}
    seen = f"inferred from {len(objects)} records: check types, and add `not null` where a record without it is bad"
    return Proposal(document, [seen, *more])


def _parsed(records: Iterable[bytes], numbers: bool) -> Iterable[Any]:
    for record in records:
        with suppress(Refused):
            yield parse_json(record, numbers=numbers)


def _rows(envelopes: Iterable[dict[str, Any]], kind: str) -> Iterable[Any]:
    """The rows before and after each change."""
    for envelope in envelopes:
        for image in ("before", "data" if kind == "dms" else "after"):
            row = envelope.get(image)
            if isinstance(row, str) and kind == "mongo":
                with suppress(Refused):
                    yield parse_json(plain_text(row))
            elif isinstance(row, dict):
                yield row


def _opaque(records: Sequence[bytes]) -> Proposal:
    try:
        is_text = not any(_CONTROL.search(record.decode()) for record in records)
    except UnicodeDecodeError:
        is_text = False
    if is_text:
        return Proposal({"format": "string", "columns": {"value": "string"}})
    return _bytes(records, "neither text nor in a registry's wire format; for Avro or Protobuf name a `schema_file`")


def _bytes(records: Sequence[bytes], why: str) -> Proposal:
    remarks = [why]
    if (number := _NUMBERS.get(len(records[0]))) and len({len(record) for record in records}) == 1:
        serializer, kind = number
        remarks.append(f"{len(records[0])} bytes each: for numbers of Kafka's {serializer} declare the type {kind}")
    return Proposal({"format": "bytes", "columns": {"value": "binary"}}, remarks)


def _connect(parsed: list[dict[str, Any]]) -> Proposal | None:
    """None: the schema of the newest record is something else that they call so."""
    newest = next((one["schema"] for one in reversed(parsed) if one["schema"]), None)
    if newest is None:
        raise ConfigurationError("no record has a schema beside its payload", remedy="declare the columns by hand")
    try:
        wire = connect_wire(newest)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    remarks = ["from the schema of the newest record"]
    fields = described_fields(wire, remarks)
    kind = _envelope(fields)
    if kind == "mongo":
        fields, more = infer_json(_rows([one["payload"] for one in parsed if one["payload"]], kind))
        remarks += more
    return Proposal({"format": "connect_json", **_described(kind, _row(kind, fields))}, remarks)


def _registered(records: Sequence[bytes], registry: Registry | None) -> tuple[Proposal, Schemas]:
    from jobs.landing.registry_schemas import registered

    if registry is None:
        raise ConfigurationError(
            "the records are in a registry's wire format", remedy="name their registry's connection: --registry NAME"
        )
    ids = Counter(split(record)[0] for record in records)
    found = {schema_id: stored for schema_id in sorted(ids, key=_age) if (stored := registry.by_id(schema_id))}
    if not found:
        some = ", ".join(map(str, sorted(ids, key=_age)[:3]))
        why = f"if these begin with schema ids ({some} …), name their registry: {registry.name} has none of them"
        return _bytes(records, why), {}
    newest = list(found)[-1]
    stored = found[newest]
    document = {"format": stored.type.lower(), "registry": registry.name}
    counted = ", ".join(f"{one} ({ids[one]})" for one in sorted(ids, key=_age))
    remarks = [f"from {called(newest)}; ids in the sample: {counted}"]
    fields = described_fields(wire_of(stored, (one for one in records if split(one)[0] == newest)), remarks)
    kind = _envelope(fields)
    described = _described(kind, _row(kind, fields))
    return Proposal({**document, **described}, remarks), {i: registered(one) for i, one in found.items()}


def _age(schema_id: SchemaId) -> tuple[int, str]:
    """Sorts ids, newer ones behind; GUIDs do not say which are newer."""
    return (schema_id, "") if isinstance(schema_id, int) else (0, schema_id)


def _has_schema_id(record: bytes, named_in_headers: bool) -> bool:
    """Whether the record may be in a registry's wire format. A number in bytes may begin with zeros too, and with a
    one: what looks like Confluent's GUID is one only if it comes from a header."""
    try:
        found, size = split(record)
    except Refused:
        return False
    return named_in_headers or size != GUID_BYTES if isinstance(found, str) else 0 < found < 2**31


def _row(kind: str | None, fields: list[pa.Field]) -> list[pa.Field]:
    """The fields of the row in an envelope's schema."""
    row = next((f.type for f in fields if f.name == ("data" if kind == "dms" else "after")), None)
    return list(row) if kind in ("debezium", "dms") and row is not None else fields


def _described(kind: str | None, fields: list[pa.Field]) -> dict[str, Any]:
    """Columns, and the envelope around them."""
    if kind is None:
        return {"columns": columns_text(fields)}
    if kind == "debezium_flat":
        fields = [f for f in fields if not f.name.startswith("__")]
    return {"envelope": kind, "columns": columns_text(fields) or {"_id": "string"}}


def _envelope(fields: Iterable[pa.Field]) -> str | None:
    """The kind of envelope that has these fields, if any."""
    kinds = {f.name: f.type for f in fields}
    if {"op", "after", "source"} <= kinds.keys():
        images = [kinds["after"], kinds.get("before", pa.null())]
        return "debezium" if any(pa.types.is_struct(image) for image in images) else "mongo"
    if {"__op", "__deleted"} & kinds.keys():
        return "debezium_flat"
    metadata = kinds.get("metadata")
    is_dms = metadata is not None and pa.types.is_struct(metadata) and "operation" in metadata.names
    return "dms" if is_dms and pa.types.is_struct(kinds.get("data", pa.null())) else None
