"""Translates a connector's chain of transforms to an envelope, a `source.transform` and renamed topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from jobs.connect_import import connect
from jobs.connect_import.chain import Chain, name
from jobs.connect_import.configuration import Configuration
from jobs.connect_import.configured import (
    ALWAYS,
    NEVER,
    TOMBSTONE,
    ConfiguredTransform,
    TransformOptions,
    condition,
    transforms,
)
from jobs.connect_import.key_steps import key_step
from jobs.connect_import.known import NOT_NULL, struct_columns, struct_of
from jobs.connect_import.routers import BY_RECORD, ROUTERS, route
from jobs.connect_import.steps import DONE, STEPS, Translation, converted_from, renames_of
from jobs.connect_import.unwrapping import MARKS, MONGO, TARGET, UNWRAPPING, deletes_mode
from jobs.spec.envelope import OP_COLUMN

_EVERY: Mapping[str, Translation] = {**STEPS, **UNWRAPPING, **dict.fromkeys(ROUTERS, route)}
_HEADERS = ("DropHeaders", "InsertHeader")
_NOT_NEEDED = {
    **dict.fromkeys(_HEADERS, "not needed any more: tables have no headers"),
    "SetSchemaMetadata": "not needed any more: a schema's name means nothing to a table",
}
_OPEN = (
    "without `delete.tombstone.handling.mode`, older versions of Debezium left deletes out: if the sink's tables kept "
    "such rows, change tables[].mode (upsert_delete to upsert, delete to append)"
)
# These do not only change columns, so a condition in SQL cannot restrict them.
_WHOLE = (*UNWRAPPING, "ValueToKey", "JsonToMapTransform")


@dataclass
class Followed:
    """The result of translating the transforms.

    Attributes:
        chain: the columns.
        steps: the translation of each transform, for the report.
        drops_deletes: deletes do not reach the sink.
        drops_tombstones: tombstones do not reach the sink.
        deletes_todo: what a person has to check if tables have deletes.
        tombstones_todo: the same, if tombstones delete rows.
    """

    chain: Chain
    steps: list[str]
    drops_deletes: bool = False
    drops_tombstones: bool = False
    deletes_todo: list[str] = field(default_factory=list)
    tombstones_todo: list[str] = field(default_factory=list)


def follow(
    configuration: Configuration, columns: Mapping[str, str], operation: str, key: Collection[str] = ()
) -> Followed:
    """Translates the chain for records with these columns.

    Args:
        operation: the field of the result by which the sink tells operations; empty: it does not.
        key: columns of the result that identify a row, if known.
    """
    found, every = Followed(Chain(dict(columns), connect.has_schema(configuration)), []), transforms(configuration)
    for number, transform in enumerate(every, 1):
        wrapped = any(later.kind in UNWRAPPING for later in every[number:])
        found.steps.append(f"{transform.name} ({transform.kind}): {_apply(found.chain, transform, wrapped)}")
        _note_deletes(found, transform, wrapped)
    if [transform.kind for transform in every if transform.kind in UNWRAPPING] == [MONGO]:
        found.chain.todo.append(f"{MONGO}: alone it left records in their envelope, whose parts are columns of the "
                                "tables (before, after); here these get the row")  # fmt: skip
    _lift(found.chain, operation, key, configuration.text("iceberg.tables.route-field"))
    if debezium_target(configuration) is None:
        found.chain.drop(TARGET)
    return found


def _note_deletes(found: Followed, transform: ConfiguredTransform, wrapped: bool) -> None:
    """Notes which deletes the transform keeps from the sink, or may keep from it."""
    kind, title, predicate = transform.kind, transform.name, transform.predicate
    if kind == "ExtractNewRecordState":
        mode = deletes_mode(transform.options)
        found.drops_deletes |= mode == "drop"
        found.drops_tombstones |= mode == "rewrite"
        found.deletes_todo += [] if mode else [f"{title}: {_OPEN}"]
    elif kind == "Filter" and not wrapped:  # in an envelope, deletes have a value
        of_tombstones = predicate if predicate and predicate.kind == TOMBSTONE else None
        if of_tombstones and (of_tombstones.negated or not _own_condition(transform)):
            found.drops_tombstones |= not of_tombstones.negated
        else:
            found.tombstones_todo.append(
                f"{title}: left out the tombstones of such records, too; here they delete rows"
            )
    elif kind == "ExtractField" and not transform.of_key:
        found.tombstones_todo.append(
            f"{title}: where the part is null, the sink deleted the row of the record's key; here such records are "
            "left out. Change data needs source.value.envelope instead"
        )


def before(configuration: Configuration, columns: Mapping[str, str]) -> dict[str, str]:
    """The columns of the records, from those of the tables that the connector has filled."""
    found = dict(columns)
    for transform in reversed([one for one in transforms(configuration) if not one.of_key]):
        kind, options = transform.kind, transform.options
        probe = Chain({})
        if kind in ("InsertField", "CopyValue", "KeyToValue", "KafkaMetadataTransform"):
            STEPS[kind](probe, options)
            made = [c for c in found if c in probe.made and c not in probe.columns]
            # Records to which it does not apply may have such a field themselves.
            own = {c: found[c].removesuffix(NOT_NULL) for c in made if transform.predicate}
            found = {c: own.get(c, k) for c, k in found.items() if c in own or c not in made}
        elif kind == "ReplaceField":
            old = {new: was for was, new in renames_of(options).items()}
            found = {old.get(c, c): k for c, k in found.items()}
        elif kind == "TimestampConverter" and (column := options.get("field", "")) in found:
            found[column] = _before_conversion(options, found[column], connect.has_schema(configuration))
        elif kind == "HoistField" and len(found) == 1 and (inner := struct_columns(next(iter(found.values())))):
            found = inner
        elif kind == "ExtractField" and transform.predicate is None:
            found = {options.get("field", ""): struct_of(found)}
        elif kind in MARKS:
            found.pop(MARKS[kind], None)
    return found


def _before_conversion(options: TransformOptions, kind: str, has_schema: bool) -> str:
    """The type of a column before TimestampConverter has made this type of it."""
    target, form = options.get("target.type", "").lower(), options.get("format")
    if target == "unix" and not form and not has_schema:
        return "long"  # a number already, in the same unit
    if target in ("string", "unix"):
        return converted_from(options)
    return "string" if form else kind


def _apply(chain: Chain, transform: ConfiguredTransform, wrapped: bool) -> str:
    """
    Args:
        wrapped: a later transform extracts the row from its envelope.
    """
    kind = transform.kind
    if kind in _HEADERS:
        chain.metadata_lost["_headers"] = kind
    if kind in _NOT_NEEDED:
        return _NOT_NEEDED[kind]
    if kind == "Filter":
        return _filter(chain, transform)
    if transform.of_key and kind in _EVERY:
        return key_step(chain, transform)
    if kind in STEPS and wrapped:
        return _left(chain, kind, "it is before the row is taken out of its envelope; say it in source.transform")
    if kind in _EVERY:
        return _step(chain, transform)
    if kind in BY_RECORD:
        chain.metadata_lost["_topic"] = kind
    title = f"{kind} of the record's key" if transform.of_key else kind
    return _left(chain, title, BY_RECORD.get(kind, "nothing stands in for it; see docs/transforms.md"))


def _left(chain: Chain, title: str, why: str) -> str:
    chain.todo.append(f"{title}: {why}")
    return "see below"


def _step(chain: Chain, transform: ConfiguredTransform) -> str:
    kind, predicate, step = transform.kind, transform.predicate, _EVERY[transform.kind]
    when = condition(chain, predicate)
    if when == NEVER:
        return "not needed: it applied to records without a value alone, which have no fields"
    by_topic = predicate is not None and predicate.kind == "TopicNameMatches"
    if when is None or (when != ALWAYS and (kind in _WHOLE or (kind in ROUTERS and not by_topic))):
        chain.todo.append(f"{transform.name}: applied where {predicate} only; here {kind} applies to every record: say "
                          "in source.transform to which it applies")  # fmt: skip
        when = ALWAYS
    if when != ALWAYS:
        return _conditionally(chain, step, transform.options, when)
    done = step(chain, transform.options)
    chain.keep_operation()
    return done


def _conditionally(chain: Chain, step: Translation, options: TransformOptions, when: str) -> str:
    """Applies the step only on this condition; other records keep the fields that it reads or drops."""
    probe = deepcopy(chain)
    step(probe, options)
    for column in [*probe.columns, *probe.left_out]:
        if column not in chain.columns and column not in chain.left_out and not chain.closed:
            chain.read(column, probe.columns.get(column, "string"))
    was = deepcopy(chain)
    done = step(chain, options)
    chain.keep_operation()
    chain.only_when(when, was)
    return done if step is route else DONE


def _own_condition(transform: ConfiguredTransform) -> str | None:
    """What the filters of Debezium and Confluent judge records by: a predicate only says which records they judge."""
    return next((text for option, text in transform.options.items() if "condition" in option), None)


def _filter(chain: Chain, transform: ConfiguredTransform) -> str:
    predicate, own = transform.predicate, _own_condition(transform)
    found = condition(chain, predicate) if predicate and own is None else None
    if found is None:
        what = predicate or "nothing" if own is None else f"{own}, where {predicate}" if predicate else own
        of_key = " of the record's key" if transform.of_key else ""
        return _left(chain, transform.kind, f"by {what}{of_key}: say it in SQL, `where` in source.transform")
    if found == NEVER:
        return "records without a value: the sink never heard of what they delete"
    chain.conditions.append(NEVER if found == ALWAYS else f"not {found}")
    return "source.transform"


def _lift(chain: Chain, operation: str, key: Collection[str], route: str) -> None:
    """Declares the fields by which the sink tells operations and tables, and makes `_op` of the first.

    Tabular's sink goes by the first letter, in any case: u updates, d deletes, all others insert, also no value at all.
    """
    if operation and chain.envelope is None:
        first = f"upper(left(trim({_field(chain, operation)}), 1))"
        chain.require_in_rows(key)
        chain.make(OP_COLUMN, f"case {first} when 'U' then 'u' when 'D' then 'd' else 'i' end", "string")
    if route and not (chain.envelope and route.startswith("_cdc.")):
        _field(chain, route)


def _field(chain: Chain, path: str) -> str:
    """The expression of a field, also of a nested one."""
    column, *parts = path.split(".")
    kind = f"struct<{': struct<'.join(parts)}: string{'>' * len(parts)}" if parts else "string"
    return ".".join([chain.read(column, kind), *map(name, parts)])


def route_field(configuration: Configuration, chain: Chain) -> str:
    """The sink's route field as a column of the result."""
    field = configuration.text("iceberg.tables.route-field")
    return TARGET if field == "_cdc.target" and TARGET in chain.made else field


def debezium_target(configuration: Configuration) -> str | None:
    """The pattern of table names of Tabular's transform for Debezium, if the sink routes by it; else None."""
    for transform in transforms(configuration):
        if transform.kind == "DebeziumTransform":
            routes = configuration.text("iceberg.tables.route-field") == "_cdc.target"
            return transform.options.get("cdc.target.pattern", "{db}.{table}") if routes else None
    return None
