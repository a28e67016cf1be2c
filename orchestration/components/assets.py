"""The assets of one pipeline: topics, the intermediate table, and one op per destination table.

One op per table, because an op is the unit of retry, pool, time limit and failure: a dead table stops no other.
No IO managers: steps hand over no data, and the order of commits is the product.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import dagster as dg

import sql
from jobs.changes.columns import landing_schema
from jobs.destinations.registry import kind_of
from jobs.iceberg import FORMAT
from jobs.planning.not_known_yet import statement_of
from jobs.spec.columns import RowColumn
from jobs.spec.pipeline import Freshness, PipelineSpec
from jobs.spec.tables import Table
from orchestration import names
from orchestration.components import checks
from orchestration.components.config import LandConfig, MergeConfig
from orchestration.components.landing import run_landing
from orchestration.components.launch import Launch
from orchestration.components.member_steps import run_landing_of_members, run_merges_of_members
from orchestration.components.merging import run_merge
from orchestration.components.metadata import about_table, column_schema, table_columns
from resources.errors import ConfigurationError

# Longest statement, in characters, that an asset's page shows: thousands of columns would make it slow.
_MOST_SQL = 10_000
_RULES = {
    "append": "Every landed record is a row, which never changes.",
    "upsert": "One row per key, from its last change.",
    "upsert_delete": "One row per key, from its last change; a delete removes the row.",
    "delete": "Every landed record is a row; a delete removes all rows of its key.",
}


def topic_specs(name: str, spec: PipelineSpec) -> list[dg.AssetSpec]:
    """One external asset per topic; the lag sensor reports to it."""
    return [
        dg.AssetSpec(
            key,
            group_name=name,
            kinds={"kafka"},
            description=_topics(spec),
            metadata={
                "connection": spec.source.connection,
                "topic": spec.source.pattern
                or ", ".join(spec.source.topics if spec.source.for_each else key.path[-1:]),
            },
        )
        for key in names.topic_keys(name, spec.source)
    ]


def _topics(spec: PipelineSpec) -> str:
    if spec.source.pattern:
        return f"Topics that match `{spec.source.pattern}`."
    return "Topics, each with its own tables." if spec.source.for_each else "A Kafka topic."


def landing_asset(launch: Launch, partitions: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    """The asset of the intermediate table, with its step."""
    spec, key = launch.spec, names.landing_key(launch.name)
    table = f"{spec.intermediate.connection}.{spec.intermediate.namespace}.{launch.name}_{spec.intermediate.suffix}"
    if spec.source.for_each:
        table = f"{table.removesuffix(spec.intermediate.suffix)}_<topic>_{spec.intermediate.suffix}"
    columns = [RowColumn(f.name, f.type, f.nullable, (f.name,)) for f in landing_schema(spec)]
    asset = dg.AssetSpec(
        key,
        deps=names.topic_keys(launch.name, spec.source),
        group_name=launch.name,
        kinds={FORMAT, "spark"},
        owners=spec.owners,
        tags={names.PIPELINE_TAG: launch.name},
        code_version=_code_version(spec, sql.SPARK),
        partitions_def=partitions,
        description="The intermediate table: changes as they were read from Kafka, one snapshot per batch. "
        "Its rows never change. Rows with `error` are dead letters.",
        metadata={
            "dagster/table_name": table,
            "dagster/column_schema": column_schema(columns),
        },
    )

    @_step(launch, asset, checks.landing_checks(key), names.pool(key))
    def landing(context: dg.AssetExecutionContext, config: LandConfig) -> Iterator[dg.MaterializeResult[Any]]:
        run = run_landing_of_members if spec.source.for_each else run_landing
        yield from run(context, launch, key, config)

    return landing


def table_asset(launch: Launch, table: Table, partitions: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    """The asset of a destination table, with its step."""
    spec, key, kind = launch.spec, names.table_key(table), kind_of(table)
    columns = table_columns(spec, table)
    asset = dg.AssetSpec(
        key,
        deps=_upstream(launch, table),
        group_name=launch.name,
        kinds=set(kind.capabilities.asset_kinds),
        owners=spec.owners,
        tags={names.PIPELINE_TAG: launch.name},
        code_version=_code_version(spec, kind.dialect),
        partitions_def=partitions,
        freshness_policy=_freshness(spec.freshness),
        description=_description(spec, table),
        metadata=about_table(launch.name, table, columns),
    )

    @_step(launch, asset, checks.table_checks(key, table, spec.freshness), names.table_pool(launch.name, spec, table))
    def merge(context: dg.AssetExecutionContext, config: MergeConfig) -> Iterator[dg.MaterializeResult[Any]]:
        if spec.many_tables:
            yield from run_merges_of_members(context, launch, key, spec.tables.index(table), config)
        else:
            yield from run_merge(context, launch, key, table, columns, config)

    return merge


def _step(
    launch: Launch, asset: dg.AssetSpec, check_specs: Sequence[dg.AssetCheckSpec], pool: str
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    name, whole = names.op_name(launch.name, asset.key), dg.BackfillPolicy.single_run()
    return dg.multi_asset(name=name, specs=[asset], check_specs=check_specs, pool=pool, backfill_policy=whole)


def _upstream(launch: Launch, table: Table) -> list[dg.AssetKey]:
    """What a table is made from. With `commit: together` the others wait for the first one's step, which merges all."""
    first = launch.spec.tables[0]
    waits = launch.spec.commit == "together" and table != first
    return [names.landing_key(launch.name), *([names.table_key(first)] if waits else [])]


def _description(spec: PipelineSpec, table: Table) -> str:
    changes = spec.changes
    ignored = " Deletes are ignored." if table.mode == "upsert" else ""
    deletes = " Deletes are rows, too." if table.deletes_are_rows else ignored
    lines = [spec.description, f"**{table.mode}**: {_RULES[table.mode]}{deletes}"]
    if table.needs_key and changes.key:
        order = changes.order_by or "batch, then topic, partition and offset"
        lines.append(f"Key: {', '.join(changes.key.columns)}. Order of changes: {order}.")
    return "\n\n".join(line for line in [*lines, _statement(spec, table)] if line)


def _statement(spec: PipelineSpec, table: Table) -> str:
    if spec.many_tables:
        each = "topic" if spec.source.for_each else f"value of {spec.route_by}"
        return f"One table for each {each}: `{table.table}`. Those that are known have assets of their own."
    try:
        text = statement_of(spec, table)
    except ConfigurationError:  # reported by the first run, with its remedy
        return ""
    if len(text) > _MOST_SQL:
        return "The statement has too many columns to be shown here: `batchmerge plan` shows it."
    return f"```sql\n{text.strip()}\n```" if text else ""


def _freshness(freshness: Freshness | None) -> dg.FreshnessPolicy | None:
    if freshness is None:
        return None
    fail, warn = timedelta(minutes=freshness.fail_minutes), timedelta(minutes=freshness.warn_minutes)
    return dg.FreshnessPolicy.time_window(fail_window=fail, warn_window=warn if warn < fail else None)


def _code_version(spec: PipelineSpec, dialect: sql.Dialect) -> str:
    """Changes with the pipeline file and with the SQL that is run for it."""
    return hashlib.sha256((spec.model_dump_json() + _sql_text(dialect)).encode()).hexdigest()[:16]


@cache
def _sql_text(dialect: sql.Dialect) -> str:
    return dialect.text()
