"""What BigQuery cannot do with the columns and the interval that a pipeline file declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jobs.destinations.bigquery.columns import Column, key_parts, table_column
from jobs.destinations.bigquery.field import Field
from jobs.destinations.bigquery.names import column_names
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.statements import order_column
from jobs.spec.columns import row_columns
from jobs.spec.pipeline import PipelineSpec
from resources.config_files.mistakes import Mistake, did_you_mean
from resources.errors import ConfigurationError

_DATES = ("DATE", "TIMESTAMP", "DATETIME")
# BigQuery takes 15 levels of RECORD (vendor page "Specify nested and repeated columns"). In the staging table each
# column is inside of one.
_MOST_LEVELS = 14
_NUMBERS = {"INTEGER", "NUMERIC", "BIGNUMERIC"}
_NOT_CLUSTERED = ("FLOAT", "JSON", "RECORD", "BYTES", "TIME")


def mistakes(spec: PipelineSpec, table: BigQueryTable) -> Iterator[Mistake]:
    """The mistakes, each with its path below the table's entry."""
    columns: dict[str, Column] = {}
    declared = row_columns(spec, table)
    yield from _other_spellings(table, [column.name for column in declared])
    for column in declared:
        try:
            name = column_names([column.name], table.sanitize_names, "", table.metadata_names)[column.name]
            made = columns[column.name] = table_column(column, name, table)
            if table.needs_key:
                key_parts([made], "")
        except ConfigurationError as problem:
            path = ("column_types", column.name) if column.name in table.column_types else ()
            yield Mistake(path, problem.what, problem.remedy)
            continue
        if (levels := _levels(made.field)) > _MOST_LEVELS:
            what = f"{column.name} has structs, or arrays and maps of them, {levels} deep, and BigQuery takes"
            yield Mistake((), f"{what} {_MOST_LEVELS}", "declare what is deeper as `text`, which takes it as JSON")
    try:
        column_names(list(columns), table.sanitize_names, "", table.metadata_names)
    except ConfigurationError as problem:
        yield Mistake((), problem.what, problem.remedy)
    yield from _order(spec, table, list(columns.values()))
    yield from _layout(table, {c.name.lower(): c.field for c in columns.values()})


def too_many_loads(spec: PipelineSpec, table: BigQueryTable) -> Iterator[str]:
    """A warning where records that come all the time make more loads than BigQuery's quota: 1,500 a table and day."""
    interval, merge_interval = spec.interval_seconds, table.merge_interval_seconds
    if interval is not None and merge_interval is not None and max(interval, merge_interval) < 60:
        yield (
            f"with `interval: {spec.interval}` it gets a load and a billed merge every "
            f"{max(interval, merge_interval):g} seconds, and BigQuery takes 1,500 loads of a table a day. "
            "Fix: set `merge_interval_seconds: 60` or more"
        )


def _other_spellings(table: BigQueryTable, declared: Sequence[str]) -> Iterator[Mistake]:
    """Columns whose type would not be applied: named as in BigQuery, or in other letters, and not as declared."""
    for name in table.column_types:
        if name not in declared and table.has_column(name, declared):
            yield Mistake(("column_types", name), f"{name} is declared otherwise", did_you_mean(name, declared))


def _order(spec: PipelineSpec, table: BigQueryTable, columns: Sequence[Column]) -> Iterator[Mistake]:
    """Merges compare the declared order of changes with the one in the table, which has to be of such a type."""
    order = order_column(spec, columns) if table.needs_key else None
    kinds = {order.staged.field_type, order.field.field_type} if order and order.conversion else set()
    if order and not kinds <= _NUMBERS:
        yield Mistake(
            ("column_types", order.source[-1]) if order.source[-1] in table.column_types else (),
            f"`changes.order_by` names {order.source[-1]}, and BigQuery cannot compare {' with '.join(sorted(kinds))}",
            "declare it in the type that has the order, and leave it out here",
        )


def _layout(table: BigQueryTable, fields: Mapping[str, Field]) -> Iterator[Mistake]:
    by = table.partition_column
    field = fields.get(by.lower()) if by else None
    if field and (field.field_type not in _DATES or field.mode == "REPEATED"):
        yield Mistake(("partition_column",), f"{by} is {_type(field)}", "name a date or timestamp column")
    elif field and field.field_type == "DATE" and table.time_partitioning == "HOUR":
        yield Mistake(("partition_column",), f"{by} is a date and has no hours", "use DAY, MONTH or YEAR")
    for number, name in enumerate(table.cluster_by):
        field = fields.get(name.lower())
        if field and (field.field_type in _NOT_CLUSTERED or field.mode == "REPEATED"):
            yield Mistake(
                ("cluster_by", number),
                f"{name} is {_type(field)}, and BigQuery cannot cluster by that",
                "use text, whole numbers, decimals, dates, timestamps, booleans or geography",
            )


def _levels(field: Field) -> int:
    """How deep its RECORDs are nested."""
    return 1 + max(map(_levels, field.fields), default=0) if field.field_type == "RECORD" else 0


def _type(field: Field) -> str:
    return "an array or a map" if field.mode == "REPEATED" else str(field.field_type)
