"""The record reader of a pipeline file: the one place where decoders are made from what the file declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from jobs.batch import Batch
from jobs.changes.columns import MOVE, UNCHANGED, names_unchanged_columns, value_fields
from jobs.changes.routing import route_filter, route_filters
from jobs.decode.base import Decoder
from jobs.decode.decoders import decoder_for
from jobs.decode.envelope import Enveloped
from jobs.decode.envelope_shape import OPERATION, EnvelopeRules
from jobs.decode.extended_json import MongoKey
from jobs.decode.formed import has_forms
from jobs.decode.json_dialect import JsonDialect
from jobs.decode.source_position import SourcePosition
from jobs.decode.unknown import Watch
from jobs.decode.wrapping import Excluding, Nested, Renamed
from jobs.landing.batch_positions import BatchPositions
from jobs.landing.moves import MoveReader
from jobs.landing.new_tables import NameRule
from jobs.landing.records import DeleteOrder, Operations, RecordReader, Truncation
from jobs.landing.registry_schemas import SchemaIds, Schemas
from jobs.landing.topic_decoder import TopicDecoder
from jobs.schema.found_fields import Excluded, shown
from jobs.schema.renaming import Renaming
from jobs.spec.added_columns import widening_columns
from jobs.spec.encoding import Encoding
from jobs.spec.formats import Format, RecordKey
from jobs.spec.metadata import landed_on_request
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.unchanged_columns import envelope_rules


def record_reader(
    spec: PipelineSpec,
    batch: Batch,
    table: pa.Schema,
    schemas: Schemas | None = None,
    refused: Mapping[str, str] | None = None,
    names: NameRule | None = None,
    moved: bool = False,
) -> RecordReader:
    """The function that Spark's workers apply to the batch's records.

    Args:
        table: the schema of the table that the rows are written to, which may have more columns than the pipeline file.
        schemas: the schemas that records name, by registry and id.
        refused: under `unknown_fields: add`, why fields could be no columns: records with these, and with any other
            that no column takes, are bad. None: such fields are reported, so that they can become columns.
        names: where records name tables, what becomes of new names.
        moved: records are changes of a key, whose omitted values are known (`jobs.dead_letters.moved_rows`).
    """
    key, op, source = spec.changes.key, spec.changes.op, spec.source
    return RecordReader(
        key_decoder=_key_decoder(spec, schemas),
        value_decoder=_value_decoder(spec, schemas, refused, moved),
        key_columns=tuple(key.columns) if key else (),
        key_from_value=_has_key_in_value(spec),
        refuse_null_keys=key.nulls == "refuse" if key else False,
        operations=Operations(op.field, tuple(op.insert), tuple(op.update), tuple(op.delete)) if op else None,
        positions=BatchPositions.of(batch.ranges),
        value_type=table.field("value").type,
        kafka_type=table.field("kafka").type,
        landed_at=batch.planned_at,
        metadata=tuple(landed_on_request(spec)),
        names_unchanged=UNCHANGED.name in table.names,
        moves=_move_reader(spec, schemas) if MOVE.name in table.names else None,
        truncation=_truncation(spec),
        delete_order=_delete_order(spec),
        shows_deletes=any(table.shows_deletes for table in spec.tables),
        float_order=_float_order(spec),
        required=tuple(f.name for f in value_fields(spec) if not f.nullable) if source.transform else (),
        forms=_forms(spec),
        routes=route_filters(spec),
        skips_tombstones=spec.changes.tombstones == "skip",
        skips_unrouted=spec.unrouted == "skip",
        value_key_decoder=_value_key_decoder(spec, schemas),
        schema_ids=SchemaIds.of(source),
        new_tables=names,
    )


def _delete_order(spec: PipelineSpec) -> DeleteOrder | None:
    """How deletes that bring nothing but their key are known; None if their order is none of the row's columns, or if
    no table shows deletes."""
    changes, envelope, by = spec.changes, spec.source.value.envelope, spec.changes.ordered_by
    metadata, resolved = envelope.metadata if envelope else {}, spec.source.resolved
    shown = [route_filter(spec, table) for table in spec.tables if table.shows_deletes]
    if not by or not changes.key or by in metadata or not shown:
        return None
    apart = {*changes.key.columns, *metadata, *([changes.op.field] if changes.op else [])}
    reads_of = resolved.reads_of if resolved else {}
    # Each delete has these, and what a statement makes of nothing else.
    brought = apart.union(*(reads_of.get(name, ()) for name in apart))
    columns = {field.name: reads_of.get(field.name, {field.name}) for field in value_fields(spec)}
    others = tuple(name for name, read in columns.items() if name not in {by, *apart} and not brought.issuperset(read))
    some = tuple(taken for taken in shown if taken is not None)
    return DeleteOrder(by, others, None if spec.new_tables or len(some) < len(shown) else some)


def _forms(spec: PipelineSpec) -> pa.StructType | None:
    """The columns of a transform's result, if some have a form; None: the decoders have read all of them by it."""
    result = pa.struct(value_fields(spec))
    return result if spec.source.transform and has_forms(result) else None


def _float_order(spec: PipelineSpec) -> str | None:
    """The column that orders the changes of a key, if it is a float and a table is merged by it."""
    floats = (field.name for field in value_fields(spec) if pa.types.is_floating(field.type))
    merged = any(table.mode != "append" for table in spec.tables)
    return next((name for name in floats if merged and name == spec.changes.ordered_by), None)


def _has_key_in_value(spec: PipelineSpec) -> bool:
    return spec.changes.key is not None and spec.changes.key.source == "value"


def _value_decoder(
    spec: PipelineSpec, schemas: Schemas | None, refused: Mapping[str, str] | None, moved: bool
) -> TopicDecoder:
    rules, watch, columns = envelope_rules(spec, moved), _watch(spec, refused), spec.source.value
    return TopicDecoder.of(
        spec.source, "value", lambda encoding: _decoder(encoding, columns, schemas, spec, False, rules, watch)
    )


def _key_decoder(spec: PipelineSpec, schemas: Schemas | None) -> TopicDecoder | None:
    """The decoder of keys; None if nothing reads them."""
    key, needed = spec.source.key, spec.source.transform or (spec.changes.key and not _has_key_in_value(spec))
    if key is None or not needed:
        return None
    watch = Watch("refuse") if key.unknown_fields == "fail" else None
    return TopicDecoder.of(spec.source, "key", lambda own: _decoder(own, key, schemas, spec, True, None, watch))


def _value_key_decoder(spec: PipelineSpec, schemas: Schemas | None) -> TopicDecoder | None:
    """The decoder of the key's columns alone, for values that do not decode as a whole; None: the key is not in the
    value, or not to be found there."""
    key, value, resolved = spec.changes.key, spec.source.value, spec.source.resolved
    if key is None or not _has_key_in_value(spec) or value.envelope:
        return None
    if resolved and not resolved.unchanged.issuperset(key.columns):
        return None
    columns = value.with_columns({c: t for c, t in value.columns.items() if c in key.columns})
    return TopicDecoder.of(spec.source, "value", lambda own: _decoder(own, columns, schemas, spec, False, None, None))


def _move_reader(spec: PipelineSpec, schemas: Schemas | None) -> MoveReader:
    """Reads the column `move`, if the table has it; all null once the pipeline no longer uses `unavailable: keep`."""
    source, envelope = spec.source, spec.source.value.envelope
    if envelope is None or not names_unchanged_columns(spec):
        return MoveReader()
    kind = envelope.kind

    def position(encoding: Encoding) -> Decoder:
        return SourcePosition(kind, _of_types(encoding, schemas, spec.ignore_case))

    return MoveReader(TopicDecoder.of(source, "value", position))


def _truncation(spec: PipelineSpec) -> Truncation | None:
    """The columns of truncations, as `jobs.spec.truncates` demands; None if truncations are not applied."""
    envelope, order = spec.source.value.envelope, spec.changes.ordered_by
    if envelope is None or envelope.truncates != "apply" or order is None:
        return None
    return Truncation(next(name for name, path in envelope.metadata.items() if path == OPERATION), order)


def reporting_decoder(spec: PipelineSpec, columns: Format, encoding: Encoding, schemas: Schemas) -> Decoder:
    """The decoder of keys or values in this encoding that reports the fields which no column takes."""
    is_key = columns is spec.source.key
    rules = None if is_key else envelope_rules(spec)
    watch = Watch("report") if is_key else _reporting(spec)
    return _decoder(encoding, columns, schemas, spec, is_key, rules, watch)


def _decoder(
    encoding: Encoding,
    columns: Format,
    schemas: Schemas | None,
    spec: PipelineSpec,
    is_key: bool,
    rules: EnvelopeRules | None,
    watch: Watch | None,
) -> Decoder:
    """The decoder of these columns from records in this encoding.

    Args:
        rules: the value's envelope has these.
        watch: what to do about fields that no column takes.
    """
    # Keys are written in the same way as the rows of their records; `Enveloped` knows it of rows.
    dialect = None if rules else spec.source.value.dialect
    of_type = _of_types(encoding, schemas, spec.ignore_case, dialect, one_value=is_key and not columns.envelope)
    renaming = Renaming(columns.rename)
    kind = renaming.in_records(columns.struct)
    decoder: Decoder
    if is_key and columns.envelope:
        decoder = MongoKey(kind, of_type)
    elif is_key:
        whole = columns.column if isinstance(columns, RecordKey) and columns.columns else None
        decoder = Nested(of_type(kind.field(0).type, watch), whole) if whole else of_type(kind, watch)
    elif rules:
        decoder = Enveloped(kind, rules.renamed(renaming.outer_fields), of_type, watch)
    else:
        decoder = of_type(kind, watch)
    if excluded := columns.excluded:
        decoder = Excluding(decoder, excluded)
    return Renamed(decoder, renaming) if columns.rename else decoder


def _of_types(
    encoding: Encoding,
    schemas: Schemas | None,
    ignore_case: bool,
    dialect: JsonDialect | None = None,
    one_value: bool = False,
) -> Callable[..., Decoder]:
    """Makes decoders of records in this encoding, for a type and a watch; `one_value` as in `decoder_for`."""
    registered = (schemas or {}).get(encoding.registry, {}) if encoding.registry else None
    any_case = ignore_case and encoding.format == "json" and registered is None
    schema, message = encoding.schema_bytes, encoding.message or ""

    def of_type(kind: pa.DataType, watch: Watch | None = None) -> Decoder:
        read = dialect.of_row(kind) if dialect else kind
        own = encoding.options
        return decoder_for(encoding.format, read, schema, message, registered, any_case, watch, own, one_value)

    return of_type


def _reporting(spec: PipelineSpec) -> Watch:
    renaming = Renaming(spec.source.value.rename)
    return Watch("report", widens=frozenset(map(renaming.field, widening_columns(spec))))


def _watch(spec: PipelineSpec, refused: Mapping[str, str] | None) -> Watch:
    """What the decoder of values is to do about fields that no column takes."""
    value = spec.source.value
    excluded = value.excluded
    match value.unknown_fields:
        case "rescue":
            return Watch("rescue", value.rescued, excluded=excluded)
        case "fail":
            return Watch("refuse", excluded=excluded)
        case "add" if refused is not None:
            renaming = Renaming(value.rename)
            lost = frozenset(map(renaming.field, spec.source.lost))
            fields = {shown(column): shown(path) for column, path in renaming.fields.items()}
            reasons = {fields.get(name, name): reason for name, reason in refused.items()}
            return Watch("refuse", reasons=reasons, excluded=Excluded(excluded.texts, lost))
    return _reporting(spec)
