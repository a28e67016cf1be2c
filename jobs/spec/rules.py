"""What has to fit together between the parts of a pipeline file: each rule gives mistakes with their paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from jobs.destinations.registry import kind_of, kinds
from jobs.schema.types import parse_columns, type_name
from jobs.spec.columns import key_fields, row_columns
from jobs.spec.letter_case import case_mistakes
from jobs.spec.metadata import metadata_of
from jobs.spec.overrides import override_mistakes
from jobs.spec.routing import route_mistakes
from jobs.spec.table_templates import template_mistakes
from jobs.spec.unchanged_columns import keep_mistakes
from resources.config_files.mistakes import Mistake, Path, closest, did_you_mean, one_of

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec

Rule = Callable[["PipelineSpec"], Iterator[Mistake]]
# Columns of the merge's own SQL (sql/spark).
RESERVED = {"__op", "__order", "__batch", "__i", "__kafka", "__rank", "__deleted", "__key_deleted", "__hit",
            "__kept", "__brought"}  # fmt: skip
_KEY, _OP, _ORDER = ("changes", "key"), ("changes", "op"), ("changes", "order_by")
_COLUMNS = ("source", "value", "columns")
_IDENTIFYING = "use a whole number, decimal, string, binary, boolean, date or timestamp"


def mistakes(spec: PipelineSpec) -> list[Mistake]:
    """All that does not fit, in the order of the rules."""
    return [replace(mistake, goes_by=paths) for paths, rule in _RULES for mistake in rule(spec)]


def unknown_column(path: Path, name: str, known: Sequence[str], of: str, at_key: bool = False) -> Mistake:
    """A column that is named and not there."""
    meant = closest(name, known)
    listed = (
        "" if meant else f"name one of {', '.join(known)}" if known else "declare it there: what is named needs a type"
    )
    return Mistake(path, f"{name} is not a column of {of}", f"did you mean `{meant}`?" if meant else listed, at_key)


def _key_columns(spec: PipelineSpec) -> Iterator[Mistake]:
    if spec.changes.key is None:
        return
    in_value = spec.changes.key.source == "value"
    if not in_value and spec.source.key is None:
        yield Mistake(
            (*_KEY, "columns"),
            "the key columns come from the record's key, but `source.key` is missing",
            "declare `source.key`, or take them from the value: `source: value`",
        )
        return
    key = spec.source.key
    origin = parse_columns(spec.source.row) if in_value or key is None else pa.schema(key.struct)
    structs = all(kind_of(t).capabilities.struct_keys for t in spec.tables if t.needs_key)
    for number, name in enumerate(spec.changes.key.columns):
        path = (*_KEY, "columns", number)
        if name not in origin.names:
            yield unknown_column(path, name, origin.names, _value_or_key(spec, in_value))
        elif _cannot_identify(origin.field(name).type, structs):
            yield Mistake(
                path, f"{name} is {type_name(origin.field(name).type)}, which cannot identify a row", _IDENTIFYING
            )


def _value_or_key(spec: PipelineSpec, in_value: bool) -> str:
    if not in_value:
        return "source.key"
    return "the transform's result" if spec.source.transform else "source.value"


def _cannot_identify(kind: pa.DataType, structs: bool) -> bool:
    """Types that Iceberg refuses for identifier fields: what is equal is not certain, or not one value.

    Some kinds compare structs part by part: `structs` allows those.
    """
    if structs and pa.types.is_struct(kind):
        return any(_cannot_identify(kind.field(n).type, structs) for n in range(kind.num_fields))
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))


def _operation(spec: PipelineSpec) -> Iterator[Mistake]:
    op = spec.changes.op
    if op is None:
        return
    value = parse_columns(spec.source.row)
    if op.field not in value.names:
        yield unknown_column((*_OP, "field"), op.field, value.names, _value_or_key(spec, True))
    elif pa.types.is_nested(value.field(op.field).type):
        yield Mistake(
            (*_OP, "field"), f"{op.field} is {type_name(value.field(op.field).type)}, not a single value",
            "name a column of text",
        )  # fmt: skip


def _order_column(spec: PipelineSpec) -> Iterator[Mistake]:
    op, order_by = spec.changes.op, spec.changes.ordered_by
    if not order_by:
        return
    value = parse_columns(spec.source.row)
    if order_by not in value.names:
        yield unknown_column(_ORDER, order_by, value.names, _value_or_key(spec, True))
    elif pa.types.is_nested(value.field(order_by).type):
        yield Mistake(
            _ORDER, f"{order_by} is {type_name(value.field(order_by).type)}, which has no order",
            "name a number, a text, a date or a timestamp",
        )  # fmt: skip
    elif op and op.field == order_by and not op.keep:
        yield Mistake(
            _ORDER, f"{order_by} is the op field, which the tables do not keep", "set `changes.op.keep: true`"
        )
    deletes = [t.table for t in spec.tables if t.mode in ("upsert_delete", "delete")]
    if deletes and not op:
        yield Mistake(
            _ORDER,
            f"a tombstone has no {order_by}, so it cannot say when {one_of(deletes, 'and')} lost the row",
            "name the column that says what a record does, in `changes.op`",
        )


def _column_names(spec: PipelineSpec) -> Iterator[Mistake]:
    """Names that would meet in a table: Spark and most systems do not tell upper from lower case."""
    names = parse_columns(spec.source.row).names
    op = spec.changes.op
    kept = [c for c in names if not (op and op.field == c and not op.keep)]
    lower = [c.lower() for c in kept]
    where = ("source", "transform") if spec.source.transform else _COLUMNS
    twice = [c for c in kept if lower.count(c.lower()) > 1]
    if twice:
        yield Mistake(
            where, f"{one_of(twice, 'and')} differ in upper and lower case only", "rename one of them in a transform"
        )
    for name in sorted(RESERVED.intersection(lower)):
        yield Mistake(where, f"{name} is a name that the merge uses itself", "rename the column in a transform")
    for number, table in enumerate(spec.tables):
        kind, metadata = kind_of(table), metadata_of(table.metadata_columns)
        if not kind.capabilities.nullable_nested and any(pa.types.is_nested(m.type) for m in metadata):
            what = f"record is a struct, and {kind.title} has no null for one"
            yield Mistake(("tables", number, "metadata_columns"), what, "name topic, partition and offset")
        ours = [m.column for m in metadata]
        for name in ours:
            if name.lower() in lower or ours.count(name) > 1:
                of = "the value" if name.lower() in lower else "the record's metadata"
                yield Mistake(
                    ("tables", number, "metadata_columns"),
                    f"{name} is a column of {of} already",
                    "rename that one in a transform, or leave this one out",
                )


def _added_columns(spec: PipelineSpec) -> Iterator[Mistake]:
    if spec.source.transform and _takes_key(spec):
        yield Mistake(("source", "key"), "a transform needs to know the key's columns", "declare `columns`")
    if spec.source.value.unknown_fields != "add":
        return
    path = ("source", "value", "unknown_fields")
    if spec.source.transform:
        what = "records cannot bring columns where a transform names them itself"
        yield Mistake(path, what, "declare `columns`, and use `rescue`, `ignore` or `fail`")
    if spec.intermediate.direct and not spec.source.value.columns:
        what = "a table that is written at once needs a column to begin with"
        yield Mistake(("intermediate", "direct"), what, "declare one in `source.value.columns`, or leave `direct` out")
    for number, table in enumerate(spec.tables):
        if not table.evolve.add_columns:
            what = "`source.value.unknown_fields: add` adds columns, and this table takes none"
            yield Mistake(("tables", number, "evolve", "add_columns"), what, "set it to true, or use `rescue`")


def _ignored_case(spec: PipelineSpec) -> Iterator[Mistake]:
    key = spec.source.key.struct if spec.source.key else []
    yield from case_mistakes(spec, [*parse_columns(spec.source.row), *key])


def _routes(spec: PipelineSpec) -> Iterator[Mistake]:
    yield from route_mistakes(spec, key_fields(spec), list(parse_columns(spec.source.row)))


def _named_columns(spec: PipelineSpec) -> Iterator[Mistake]:
    """Columns that the options of tables name: partitions, orders, types and so on."""
    for number, table in enumerate(spec.tables):
        known = [column.name for column in row_columns(spec, table.metadata_columns)]
        for path, name in table.named_columns():
            if not table.has_column(name, known):
                yield unknown_column(("tables", number, *path), name, known, "the table", path[-1] == name)


def _options_of_kinds(spec: PipelineSpec) -> Iterator[Mistake]:
    """What a system does not have, and options that do not suit the types of the columns."""
    for number, table in enumerate(spec.tables):
        for mistake in kind_of(table).mistakes(spec, table):
            yield mistake.below(("tables", number))


def _tables(spec: PipelineSpec) -> Iterator[Mistake]:
    seen: set[tuple[str, str, str]] = set()
    for number, table in enumerate(spec.tables):
        name = (table.kind, table.connection, table.table)
        if name in seen:
            yield Mistake(("tables", number, "table"), f"{table.table} is named twice", "name another table")
        seen.add(name)
        if table.mode not in kind_of(table).capabilities.modes:
            yield Mistake(
                ("tables", number, "mode"),
                f"{kind_of(table).title} does not have the mode {table.mode}",
                f"use {one_of(sorted(kind_of(table).capabilities.modes))}",
            )
        if table.needs_key and spec.changes.key is None and not _takes_key(spec):
            yield Mistake(
                ("tables", number, "mode"),
                f"{table.mode} needs to know which columns identify a row",
                "name them in `changes.key.columns`, or use the mode append",
            )


def _takes_key(spec: PipelineSpec) -> bool:
    """Whether the key is whatever records have (`jobs.spec.added_columns.key_is_open`)."""
    return spec.source.key is not None and spec.source.key.takes_new_columns


def _direct(spec: PipelineSpec) -> Iterator[Mistake]:
    only = spec.tables[0]
    if not spec.intermediate.direct:
        return
    if len(spec.tables) > 1 or not kind_of(only).capabilities.lands_directly or only.mode != "append":
        able = one_of([kind.title for kind in kinds().values() if kind.capabilities.lands_directly])
        yield Mistake(
            ("intermediate", "direct"),
            f"it works with one table alone, in {able} and of mode append",
            "leave `direct` out",
        )
    elif only.connection != spec.intermediate.connection:
        yield Mistake(
            ("intermediate", "direct"),
            f"the table is in {only.connection}, and what is landed in {spec.intermediate.connection}",
            "name the same connection in both",
        )


def _together(spec: PipelineSpec) -> Iterator[Mistake]:
    places = {(t.kind, t.connection) for t in spec.tables}
    able = [kind.title for kind in kinds().values() if kind.capabilities.commits_together]
    alone = len(places) > 1 or not kind_of(spec.tables[0]).capabilities.commits_together
    if spec.commit == "together" and (alone or spec.intermediate.direct):
        yield Mistake(
            ("commit",),
            f"`together` needs tables of one {one_of(able)} connection, and an intermediate table",
            "use `each`, or make two pipelines",
        )
    elif spec.commit == "together" and spec.source.for_each:
        yield Mistake(("commit",), "with `source.for_each` every table is committed by itself", "use `each`")


def _order(spec: PipelineSpec) -> Iterator[Mistake]:
    """Where a key may move between partitions, the order of its changes has to be named (DESIGN section 3)."""
    if spec.changes.order_by or not any(t.needs_key for t in spec.tables):
        return
    remedy = "name `changes.order_by` (a version column, or `arrival` to accept the order of offsets)"
    if len(spec.source.topics) != 1 and spec.source.for_each is None:
        yield Mistake(("changes",), "with several topics nothing orders the changes to one key", remedy, at_key=True)
    elif spec.changes.key and spec.changes.key.source == "value":
        what = "keys from the value may be in any partition, so nothing orders their changes"
        yield Mistake((*_KEY, "source"), what, remedy)


def _maintenance(spec: PipelineSpec) -> Iterator[Mistake]:
    upkeep = spec.maintenance
    names = list(dict.fromkeys(t.table for t in spec.tables))
    for number, name in enumerate(upkeep.skip_tables):
        # With `for_each` it is a name that a template gives for some topic.
        if name not in names and spec.source.for_each is None:
            yield Mistake(
                ("maintenance", "skip_tables", number),
                f"{name} is not a table of the pipeline",
                did_you_mean(name, names),
            )
    known = list(
        dict.fromkeys(column.name for table in spec.tables for column in row_columns(spec, table.metadata_columns))
    )
    for number, name in enumerate(upkeep.compaction.sort_by):
        if name not in known:
            yield unknown_column(("maintenance", "compaction", "sort_by", number), name, known, "the tables")
    longest = max(spec.batch.time_limit_seconds, *(t.time_limit_seconds for t in spec.tables))
    if upkeep.orphans.enabled and longest >= upkeep.orphans.older_than_hours * 3600:
        yield Mistake(
            ("maintenance", "orphans", "older_than_hours"),
            f"a run may take {longest} seconds, and its files look like orphans before it ends",
            "write more hours than the longest `time_limit_seconds` has",
        )


def _interval(spec: PipelineSpec) -> Iterator[Mistake]:
    if spec.interval is None:
        return
    for name in ("cron", "trigger"):
        if name in spec.model_fields_set:
            what = "`interval` keeps a run that commits all the time, and nothing else starts one"
            yield Mistake((name,), what, f"leave out `{name}`, or `interval`", at_key=True)
    if spec.source.for_each or spec.commit == "together":
        other = "source.for_each" if spec.source.for_each else "commit: together"
        yield Mistake(("interval",), f"it does not go with `{other}` yet", "use `cron`, at most once a minute")


def _own_topics(spec: PipelineSpec) -> Iterator[Mistake]:
    for number, name in enumerate(spec.source.topics):
        if name in spec.own_topics:
            yield Mistake(
                ("source", "topics", number),
                f"{name} is written by the pipeline itself, which would read it again",
                "name another topic, here or in `control` and `dead_letters`",
            )


# What each rule goes by besides the place that it names, and the rule.
_VALUE: tuple[Path, ...] = (("source", "value"), ("source", "transform"))
_ALL_COLUMNS: tuple[Path, ...] = (*_VALUE, ("source", "key"))
_TOPICS: tuple[Path, ...] = (("source", "topics"), ("source", "pattern"))
_TABLES: Path = ("tables",)
_RULES: list[tuple[tuple[Path, ...], Rule]] = [
    ((*_ALL_COLUMNS, _TABLES), _key_columns),
    (_VALUE, _operation),
    ((*_VALUE, _OP, _TABLES), _order_column),
    ((*_VALUE, _OP), _column_names),
    ((("source", "transform"), _TABLES), _added_columns),
    ((*_ALL_COLUMNS, ("source", "per_topic"), ("ignore_case",)), _ignored_case),
    ((*_ALL_COLUMNS, *_TOPICS, _KEY), _routes),
    ((*_ALL_COLUMNS, _KEY, _OP), _named_columns),
    ((*_ALL_COLUMNS, _KEY, _OP), _options_of_kinds),
    ((_KEY,), _tables),
    ((_TABLES,), _direct),
    ((_TABLES, ("intermediate", "direct")), _together),
    ((_TABLES, *_TOPICS, _KEY, _ORDER), _order),
    ((*_VALUE, _TABLES, ("intermediate", "direct"), _ORDER), keep_mistakes),
    ((_TABLES,), _maintenance),
    ((("cron",), ("trigger",), ("commit",), ("source", "for_each")), _interval),
    ((("control",), ("dead_letters",)), _own_topics),
    ((*_TOPICS, ("source", "for_each")), template_mistakes),
    ((*_TOPICS, ("source", "for_each")), override_mistakes),
]
