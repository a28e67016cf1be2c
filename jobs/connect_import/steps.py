"""The translation of each transform of Kafka Connect and of the sinks (`docs/transforms.md` in code).

A step returns a text for the report. Sources: Apache Kafka's documentation, "Transformations", and the sinks'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from jobs.connect_import.chain import Chain, name
from jobs.connect_import.configured import TransformOptions
from jobs.schema.types import parse_type
from resources.errors import ConfigurationError
from sql import literal

Translation = Callable[[Chain, TransformOptions], str]

_TYPES = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double",
          "boolean": "boolean", "string": "string"}  # fmt: skip
# Functions to and from a number, by unit of `unix.precision`.
_UNITS = {
    "seconds": ("unix_seconds({})", "timestamp_seconds({})"),
    "milliseconds": ("unix_millis({})", "timestamp_millis({})"),
    "microseconds": ("unix_micros({})", "timestamp_micros({})"),
    "nanoseconds": ("unix_micros({}) * 1000", "timestamp_micros({} div 1000)"),
}
# Numbers that Connect's times and dates are.
_NUMBERS = {"timestamp": "unix_millis({})", "date": "unix_date({})"}
_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"
_METADATA = ("topic", "partition", "offset", "timestamp")
DONE = "source.transform"


def items(options: TransformOptions, *names: str) -> list[str]:
    """A list option, by its present or an older name."""
    given = next((options[n] for n in names if options.get(n)), "")
    return [part.strip() for part in given.split(",") if part.strip()]


def renames_of(options: TransformOptions) -> dict[str, str]:
    """From old names to new ones."""
    return dict(part.split(":", 1) for part in items(options, "renames") if ":" in part)


def replace_field(chain: Chain, options: TransformOptions) -> str:
    renames = renames_of(options)
    include, exclude = items(options, "include", "whitelist"), items(options, "exclude", "blacklist")
    for column in [*include, *renames]:
        chain.read(column)
    for column in [c for c in chain.made if include and c not in include]:
        chain.drop(column)
    for column in exclude:
        chain.leave_out(column)
    chain.closed |= bool(include)
    before, kinds = dict(chain.made), {column: chain.type_of(column) for column in chain.made}
    moved = {renames.get(column, column): column for column in before}
    chain.made = {new: before[old] for new, old in moved.items()}
    chain.types = {new: kinds[old] for new, old in moved.items() if old in chain.types}
    said = {DONE: renames, "source.value.exclude": exclude, "source.value.columns: no other field": include}
    return ", ".join(text for text, given in said.items() if given)


def cast(chain: Chain, options: TransformOptions) -> str:
    for part in items(options, "spec"):
        column, _, kind = part.rpartition(":")
        if not column:
            chain.todo.append("Cast of a whole value: declare that type in source.value.columns")
            continue
        old, wanted, present = chain.read(column), _TYPES.get(kind, "string"), chain.type_of(column)
        if old == "_timestamp":  # which InsertField makes a number of, where there is no schema to call it a time
            old, present = (old, "timestamp") if chain.has_schema else (f"unix_millis({old})", "")
        if present != wanted:
            chain.make(column, _cast(old, present, wanted))
        else:
            plain, of_time = (_cast(name(column), one, wanted) for one in ("", "timestamp"))
            chain.todo.append(
                f"{column}: declared as {wanted}, to which the sink casts it; where records hold another type, declare "
                f"that and {plain}, of times {of_time}, in source.transform"
            )
    return DONE


def _cast(expression: str, present: str, wanted: str) -> str:
    """As Connect casts: times are milliseconds, dates days; as text, midnights are dates."""
    if wanted == "string" and present.startswith("timestamp"):
        form = f"case when unix_millis({expression}) % 86400000 = 0 then 'yyyy-MM-dd' else {literal(_ISO)} end"
        return f"date_format({expression}, {form})"
    number = next((text for kind, text in _NUMBERS.items() if present.startswith(kind)), "{}")
    return f"cast({expression if wanted == 'string' else number.format(expression)} as {wanted})"


def timestamp_converter(chain: Chain, options: TransformOptions) -> str:
    target, column = options.get("target.type", "").lower(), options.get("field", "")
    form, unit = options.get("format", ""), options.get("unix.precision", "milliseconds").lower()
    if not column or target == "time" or unit not in _UNITS:
        chain.todo.append(
            f"TimestampConverter to {target or 'nothing'} of {column or 'a whole value'} in {unit}: nothing does so"
        )
        return "see below"
    to_number, from_number = _UNITS[unit]
    if target in ("string", "unix"):
        read = chain.read(column, converted_from(options))
        kind = chain.type_of(column)
        time = from_number.format(read) if kind in ("int", "long") else read
        if target == "string":
            chain.make(column, f"date_format({time}, {literal(form)})", "string")
        else:
            time = f"to_timestamp({read}, {literal(form)})" if form and kind == "string" else time
            chain.make(column, to_number.format(time), "long")
    elif form:
        found = f"to_timestamp({chain.read(column)}, {literal(form)})"
        chain.make(column, f"to_date({chain.read(column)}, {literal(form)})" if target == "date" else found, target)
    elif chain.type_of(column) in ("int", "long"):
        found = from_number.format(chain.read(column))
        chain.make(column, f"cast({found} as date)" if target == "date" else found, target)
    else:
        if chain.read(column, target) == name(column) and chain.type_of(column) == "string":
            chain.columns[column] = target
        chain.todo.append(f"{column}: declared as {target}; where records hold a number, declare it long and use "
                          f"{from_number.format(name(column))} in source.transform")  # fmt: skip
        return "source.value.columns"
    return DONE


def converted_from(options: TransformOptions) -> str:
    """The type of a time from which TimestampConverter makes a text or a number, as far as its options tell it."""
    if options.get("target.type", "").lower() == "unix":
        return "string" if options.get("format") else "timestamp"
    return "timestamp" if options.get("unix.precision", "milliseconds").lower() == "milliseconds" else "long"


def insert_field(chain: Chain, options: TransformOptions) -> str:
    for part in _METADATA:
        if column := options.get(f"{part}.field", "").rstrip("!?"):
            chain.make(column, chain.seen(f"_{part}"))
    if column := options.get("static.field", "").rstrip("!?"):
        chain.make(column, literal(options.get("static.value", "")))
    return DONE


def mask_field(chain: Chain, options: TransformOptions) -> str:
    replacement = options.get("replacement", "")
    for column in items(options, "fields"):
        old = chain.read(column)
        kind = chain.type_of(column) or "string"
        if kind == "string":
            mask = literal(replacement)
        elif kind == "boolean":
            mask = "false"
        elif kind in ("int", "long", "float", "double") or kind.startswith("decimal"):
            mask = f"cast({literal(replacement or '0')} as {kind})"
        else:
            chain.make(column, f"cast(null as {kind})", kind)
            chain.todo.append(f"{column}: masked by null, since {kind} has no empty value")
            continue
        chain.make(column, f"case when {old} is not null then {mask} end")
    return DONE


def extract_field(chain: Chain, options: TransformOptions) -> str:
    column = options.get("field", "")
    struct = chain.read(column, "struct<fill_in: string>")
    inner = _fields(struct, chain.type_of(column))
    if not inner:
        chain.todo.append(f"ExtractField: {column} is no struct; name the column of its value in source.transform")
        return "see below"
    chain.made, chain.types, chain.reshaped = inner, {}, True
    chain.conditions.append(f"{struct} is not null")  # else it is a record without a value
    return DONE


def hoist_field(chain: Chain, options: TransformOptions) -> str:
    parts = [part for column, made in chain.made.items() for part in (literal(column), made)]
    chain.made, chain.types = {options.get("field", "value"): f"named_struct({', '.join(parts)})"}, {}
    chain.reshaped = True
    return DONE


def flatten(chain: Chain, options: TransformOptions) -> str:
    mark = options.get("delimiter", ".")
    flat: dict[str, str] = {}
    for column, made in chain.made.items():
        flat |= _flat(column, made, _parsed(chain.type_of(column)), mark)
    chain.made, chain.reshaped = flat, True
    if not any("struct<" in kind for kind in chain.columns.values()):
        chain.todo.append("Flatten: no column is declared as a struct; source.transform names the parts of one by "
                          f"`struct`.`part` as `struct{mark}part`")  # fmt: skip
    return DONE


def value_to_key(chain: Chain, options: TransformOptions) -> str:
    chain.key = items(options, "fields")
    for column in chain.key:
        chain.read(column)
    return "changes.key: {source: value}"


def key_to_value(chain: Chain, options: TransformOptions) -> str:
    chain.record_key = {"key": "string"}
    chain.make(options.get("field", "_key"), "_key.`key`")
    return DONE


def json_to_map(chain: Chain, options: TransformOptions) -> str:
    if options.get("json.root", "false").lower() != "true":
        chain.value_format = "json"
        return "source.value: format json; declare nested fields as map<string,string>"
    chain.value_format, chain.columns = "string", {"payload": "string"}
    kind = "map<string,string>"
    chain.made, chain.types = {"payload": f"from_json({name('payload')}, {literal(kind)})"}, {"payload": kind}
    chain.reshaped = True
    return DONE


def copy_value(chain: Chain, options: TransformOptions) -> str:
    source, target = options.get("source.field", ""), options.get("target.field", "")
    chain.make(target, chain.read(source))
    return DONE


def kafka_metadata(chain: Chain, options: TransformOptions) -> str:
    prefix = options.get("field_name", "_kafka_metadata")
    parts = {**{part: chain.seen(f"_{part}") for part in _METADATA}, "timestamp": "unix_millis(_timestamp)"}
    if external := options.get("external_field", ""):
        key, _, value = external.partition(",")
        parts[key.strip()] = literal(value.strip())
    if options.get("nested", "false").lower() == "true":
        chain.make(prefix, f"named_struct({', '.join(x for n, e in parts.items() for x in (literal(n), e))})")
    else:
        for part, made in parts.items():
            chain.make(f"{prefix}_{part}", made)
    return DONE


def header_from(chain: Chain, options: TransformOptions) -> str:
    moved = items(options, "fields") if options.get("operation", "").lower() == "move" else []
    for column in moved:
        chain.leave_out(column)
    chain.metadata_lost["_headers"] = "HeaderFrom"
    return "source.value.exclude" if moved else "not needed any more: tables have no headers"


def _fields(expression: str, kind: str) -> dict[str, str]:
    """The fields of a struct, each with its expression."""
    found = _parsed(kind)
    if not pa.types.is_struct(found):
        return {}
    return {inner.name: f"{expression}.{name(inner.name)}" for inner in found}


def _flat(column: str, expression: str, kind: pa.DataType, mark: str) -> dict[str, str]:
    if not pa.types.is_struct(kind):
        return {column: expression}
    found: dict[str, str] = {}
    for inner in kind:
        found |= _flat(f"{column}{mark}{inner.name}", f"{expression}.{name(inner.name)}", inner.type, mark)
    return found


def _parsed(kind: str) -> pa.DataType:
    try:
        return parse_type(kind, "")[0] if kind else pa.null()
    except ConfigurationError:
        return pa.null()


STEPS: Mapping[str, Translation] = {
    "ReplaceField": replace_field,
    "Cast": cast,
    "TimestampConverter": timestamp_converter,
    "InsertField": insert_field,
    "MaskField": mask_field,
    "ExtractField": extract_field,
    "HoistField": hoist_field,
    "Flatten": flatten,
    "ValueToKey": value_to_key,
    "KeyToValue": key_to_value,
    "JsonToMapTransform": json_to_map,
    "CopyValue": copy_value,
    "KafkaMetadataTransform": kafka_metadata,
    "HeaderFrom": header_from,
}
