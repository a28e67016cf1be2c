"""Rules between the parts of a pipeline file: each returns mistakes with their paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.destinations.registry import kind_of, kinds
from jobs.schema.types import parse_columns
from jobs.spec import column_rules
from jobs.spec.column_rules import KEY, OP, ORDER, unknown_column
from jobs.spec.columns import key_fields, row_columns
from jobs.spec.new_tables import new_tables_mistakes
from jobs.spec.overrides import override_mistakes
from jobs.spec.routing import route_mistakes
from jobs.spec.table_templates import template_mistakes
from jobs.spec.tables import tables_called
from jobs.spec.truncates import truncate_mistakes
from jobs.spec.unchanged_columns import keep_mistakes
from resources.config_files.mistakes import Mistake, Path, did_you_mean, one_of

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.tables import Table

Rule = Callable[["PipelineSpec"], Iterator[Mistake]]


def mistakes(spec: PipelineSpec) -> list[Mistake]:
    """All mistakes, in the order of the rules."""
    return [replace(mistake, goes_by=paths) for paths, rule in _RULES for mistake in rule(spec)]


def _routes(spec: PipelineSpec) -> Iterator[Mistake]:
    yield from route_mistakes(spec, key_fields(spec), list(parse_columns(spec.source.row)))


def _of_each_table(rule: Callable[[PipelineSpec, Table], Iterator[Mistake]]) -> Rule:
    """The rule for all tables; the paths of its mistakes begin at the table."""

    def of_all(spec: PipelineSpec) -> Iterator[Mistake]:
        for number, table in enumerate(spec.tables):
            yield from (mistake.below(("tables", number)) for mistake in rule(spec, table))

    return of_all


def _named_columns(spec: PipelineSpec, table: Table) -> Iterator[Mistake]:
    """Columns in options of tables (partitions, orders, types etc.) have to exist."""
    known = [column.name for column in row_columns(spec, table)]
    for path, name in table.named_columns():
        if table.has_column(name, known):
            continue
        unknown = unknown_column(path, name, known, "the table", path[-1] == name)
        if spec.source.value.takes_new_columns and unknown.remedy.startswith("name one of"):
            unknown = replace(unknown, remedy="declare it in `source.value.columns`: records bring the others")
        yield unknown


def _options_of_kinds(spec: PipelineSpec, table: Table) -> Iterator[Mistake]:
    """Options that a system does not support, or that do not suit the columns' types."""
    yield from kind_of(table).mistakes(spec, table)


def _modes(spec: PipelineSpec, table: Table) -> Iterator[Mistake]:
    kind = kind_of(table)
    if table.mode not in kind.capabilities.modes:
        what = f"{kind.title} does not have the mode {table.mode}"
        yield Mistake(("mode",), what, f"use {one_of(sorted(kind.capabilities.modes))}")
    if table.deletes_are_rows and table.mode not in ("append", "upsert"):
        remedy = "leave it out, or use the mode append (a log of changes) or upsert (deleted rows stay, with `_op`)"
        yield Mistake(("deletes",), f"in the mode {table.mode} a delete cannot be a row", remedy)
    if table.needs_key and spec.changes.key is None and not spec.source.key_is_open:
        what = f"{table.mode} needs to know which columns identify a row"
        yield Mistake(("mode",), what, "name them in `changes.key.columns`, or use the mode append")


def _names(spec: PipelineSpec) -> Iterator[Mistake]:
    """Tables of one name, also to Dagster, which does not allow all characters in names of steps and checks."""
    seen: dict[str, Table] = {}
    for number, table in enumerate(spec.tables):
        other = seen.setdefault(re.sub(r"\W", "_", "__".join(table.full_path)), table)
        if other is table:
            continue
        what, remedy = f"{table.table} is named twice", "name another table"
        if (other.connection, other.table) != (table.connection, table.table):
            what = f"Dagster has the same name for {table.table} as for {other.table}"
            remedy = "write one of them in a pipeline of its own"
        yield Mistake(("tables", number, "table"), what, remedy)


def _multi_table_commit(spec: PipelineSpec) -> Iterator[Mistake]:
    places = {(t.kind, t.connection) for t in spec.tables}
    able = [kind.title for kind in kinds().values() if kind.capabilities.commits_together]
    alone = len(places) > 1 or not kind_of(spec.tables[0]).capabilities.commits_together
    if spec.commit == "together" and alone:
        yield Mistake(
            ("commit",),
            f"`together` needs tables of one {one_of(able)} connection",
            "use `each`, or make two pipelines",
        )
    elif spec.commit == "together" and spec.source.for_each:
        yield Mistake(("commit",), "with `source.for_each` every table is committed by itself", "use `each`")


def _order(spec: PipelineSpec) -> Iterator[Mistake]:
    """If a key may move between partitions, `order_by` has to name the order of its changes (`docs/internals.md`)."""
    if spec.changes.order_by or not any(t.needs_key for t in spec.tables):
        return
    remedy = "name `changes.order_by` (a version column, or `arrival` to accept the order of offsets)"
    if len(spec.source.topics) != 1 and spec.source.for_each is None:
        yield Mistake(("changes",), "with several topics nothing orders the changes to one key", remedy, at_key=True)
    elif spec.changes.key and spec.changes.key.source == "value":
        what = "keys from the value may be in any partition, so nothing orders their changes"
        yield Mistake((*KEY, "source"), what, remedy)


def _maintenance(spec: PipelineSpec) -> Iterator[Mistake]:
    upkeep = spec.maintenance
    all_names = [table.table for table in spec.tables]
    names = [table.title if all_names.count(table.table) > 1 else table.table for table in spec.tables]
    for number, name in enumerate(upkeep.skip_tables):
        meant = [f"`{table.title}`" for table in tables_called(spec.tables, name)]
        if len(meant) > 1:
            # Without its number: a topic's own list may be shorter than the file's.
            path, remedy = ("maintenance", "skip_tables"), f"name each: {one_of(meant, 'and')}"
            yield Mistake(path, f"{name} means {len(meant)} tables", remedy)
        # A template may produce the name for some topic or value.
        elif not meant and not spec.many_tables:
            yield Mistake(
                ("maintenance", "skip_tables", number),
                f"{name} is not a table of the pipeline",
                did_you_mean(name, names),
            )
    known = list(dict.fromkeys(column.name for table in spec.tables for column in row_columns(spec, table)))
    for number, name in enumerate(upkeep.compaction.sort_by):
        if name not in known:
            yield unknown_column(("maintenance", "compaction", "sort_by", number), name, known, "the tables")
    # A batch may be read while the one before it is landed (`jobs.landing.read_ahead`).
    longest = max(2 * spec.batch.time_limit_seconds, *(t.time_limit_seconds for t in spec.tables))
    if upkeep.orphans.enabled and longest >= upkeep.orphans.older_than_hours * 3600:
        yield Mistake(
            ("maintenance", "orphans", "older_than_hours"),
            f"files may wait for their commit for {longest} seconds, and look like orphans before",
            "write more hours than the longest `time_limit_seconds` of a table has, and twice that of `batch`, whose "
            "files may be written while the batch before it is landed",
        )


def _interval(spec: PipelineSpec) -> Iterator[Mistake]:
    if spec.interval is None:
        return
    for name in ("cron", "trigger"):
        if name in spec.model_fields_set:
            what = "`interval` keeps a continuous run, and nothing else starts runs"
            yield Mistake((name,), what, f"leave out `{name}`, or `interval`", at_key=True)


def _own_topics(spec: PipelineSpec) -> Iterator[Mistake]:
    for number, name in enumerate(spec.source.topics):
        if name in spec.own_topics:
            yield Mistake(
                ("source", "topics", number),
                f"{name} is written by the pipeline itself, which would read it again",
                "name another topic, here or in `control` and `dead_letters`",
            )


# Each rule, with the parts of the file on which it depends besides the path that it reports.
_VALUE: tuple[Path, ...] = (("source", "value"), ("source", "transform"))
_ALL_COLUMNS: tuple[Path, ...] = (*_VALUE, ("source", "key"))
_TOPICS: tuple[Path, ...] = (("source", "topics"), ("source", "pattern"))
_TABLES: Path = ("tables",)
_RULES: list[tuple[tuple[Path, ...], Rule]] = [
    ((*_ALL_COLUMNS, _TABLES), column_rules.key_columns),
    (_VALUE, column_rules.operation),
    ((*_VALUE, OP, _TABLES), column_rules.order_column),
    ((*_VALUE, OP), column_rules.column_names),
    ((("source", "transform"), _TABLES), column_rules.added_columns),
    ((*_ALL_COLUMNS, ("source", "per_topic"), ("ignore_case",)), column_rules.letter_case),
    ((*_ALL_COLUMNS, *_TOPICS, KEY), _routes),
    ((*_ALL_COLUMNS, KEY, OP), _of_each_table(_named_columns)),
    ((*_ALL_COLUMNS, KEY, OP), _of_each_table(_options_of_kinds)),
    ((KEY,), _of_each_table(_modes)),
    ((), _names),
    ((_TABLES,), _multi_table_commit),
    ((_TABLES, *_TOPICS, KEY, ORDER), _order),
    ((*_VALUE, _TABLES, ORDER), keep_mistakes),
    ((*_VALUE, _TABLES, *_TOPICS, ORDER, ("route_by",)), truncate_mistakes),
    ((_TABLES,), _maintenance),
    ((("cron",), ("trigger",)), _interval),
    ((("control",), ("dead_letters",)), _own_topics),
    ((*_TOPICS, ("source", "for_each"), ("new_tables",)), template_mistakes),
    ((*_TOPICS, ("source", "for_each")), override_mistakes),
    ((("route_by",), _TABLES, ("commit",), ("source", "for_each")), new_tables_mistakes),
]
