"""The assets of a pipeline with `for_each` besides its own: a topic and its tables, for every topic that is known; with
`new_tables` the tables of every name that is known.

A run has one step for the landing and one for each entry of `tables`, not one for each of hundreds of tables: Dagster
writes an event for each asset of a run before anything happens. So these assets belong to no step. The steps report
what they did to each, also of topics that nobody knew when the definitions were loaded; such an asset has its history
when it shows up after a reload.
"""

from __future__ import annotations

from contextlib import suppress

import dagster as dg

from jobs.destinations.registry import kind_of
from jobs.known_topics import known_members, seen_names
from jobs.spec.new_tables import Named, allowed, named_table
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from orchestration import names
from orchestration.components.launch import Launch
from orchestration.components.metadata import column_lineage, column_schema, table_columns
from resources.config_files.mistakes import Mistakes


def member_assets(launch: Launch, partitions: dg.PartitionsDefinition) -> list[dg.AssetSpec]:
    """Topics in the group `<pipeline>_topics`, tables in one group for each entry of `tables`; none where each entry is
    one table."""
    found, spec = list[dg.AssetSpec](), launch.spec
    if spec.source.for_each:
        for member in known_members(launch.name, spec).members:
            topic = _topic(launch, member.topic)
            whose = zip(spec.tables, member.spec.tables, strict=True)
            of_topic = [_table(launch, *tables, member.spec, member.topic, partitions, topic.key) for tables in whose]
            found += [topic, *of_topic]
    if spec.new_tables:
        for name, named in allowed(spec, {name: Named(name) for name in seen_names(launch.name)}).items():
            with suppress(Mistakes):  # told by whoever opens the pipeline
                made = [(entry, named_table(entry, named)) for entry in spec.tables]
                found += [_table(launch, *tables, spec, name, partitions) for tables in made]
    # Whatever a topic or a record is called, it cannot take the name of a step.
    steps = {names.table_key(entry) for entry in spec.tables}
    return [asset for asset in found if asset.key not in steps]


def _topic(launch: Launch, topic: str) -> dg.AssetSpec:
    connection = launch.spec.source.connection
    return dg.AssetSpec(
        dg.AssetKey([connection, topic]),
        group_name=f"{launch.name}_topics",
        kinds={"kafka"},
        description="A Kafka topic.",
        metadata={"connection": connection, "topic": topic},
    )


def _table(
    launch: Launch,
    entry: Table,
    table: Table,
    spec: PipelineSpec,
    whose: str,
    partitions: dg.PartitionsDefinition,
    *topics: dg.AssetKey,
) -> dg.AssetSpec:
    """`whose`: the topic, or the name that records brought, that the table is for."""
    step, columns = names.table_key(entry), table_columns(spec, table)
    return dg.AssetSpec(
        names.table_key(table),
        deps=[*topics, step],
        group_name=f"{launch.name}_{entry.kind}",
        kinds=set(kind_of(table).capabilities.asset_kinds),
        owners=launch.spec.owners,
        tags={names.PIPELINE_TAG: launch.name},
        partitions_def=partitions,
        description=f"What {whose} says, in the mode {table.mode}. Written by the step of {'/'.join(step.path)}.",
        metadata={
            "dagster/table_name": f"{table.connection}.{table.table}",
            "topic": whose,
            "dagster/column_schema": column_schema(columns),
            "dagster/column_lineage": column_lineage(columns, names.landing_key(launch.name)),
        },
    )
