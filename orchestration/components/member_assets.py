"""Further assets of a pipeline with many tables: with `for_each` each known topic and its tables, with `new_tables` the
tables of each known name.

A run has one step for the landing and one for each entry of `tables`, not one for each of hundreds of tables: Dagster
writes an event for each asset of a run before anything happens. So these assets belong to no step. The steps report
what they did to each, also of topics that nobody knew when the definitions were loaded; such an asset has its history
when it shows up after a reload.
"""

from __future__ import annotations

import dagster as dg

from jobs.destinations.registry import kind_of
from orchestration import names
from orchestration.components.launch import Launch
from orchestration.components.metadata import about_table, table_columns
from orchestration.known_tables import EntryTable, known_tables


def member_assets(launch: Launch, partitions: dg.PartitionsDefinition) -> list[dg.AssetSpec]:
    """Topics in the group `<pipeline>_topics`, tables in one group for each entry of `tables`; none where each entry is
    one table."""
    spec = launch.spec
    if not spec.many_tables:
        return []
    known = list(known_tables(launch.name, spec))
    topics = {one.key: _topic(launch, one.key) for one in known if spec.source.for_each}
    found = [*topics.values(), *(_table(launch, one, partitions, topics.get(one.key)) for one in known)]
    # A topic, or a name in a record, must not take the asset key of a step.
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
    launch: Launch, known: EntryTable, partitions: dg.PartitionsDefinition, topic: dg.AssetSpec | None
) -> dg.AssetSpec:
    entry, table = known.entry, known.table
    step = names.table_key(entry)
    return dg.AssetSpec(
        names.table_key(table),
        deps=[topic.key, step] if topic else [step],
        group_name=f"{launch.name}_{entry.kind}",
        kinds=set(kind_of(table).capabilities.asset_kinds),
        owners=launch.spec.owners,
        tags={names.PIPELINE_TAG: launch.name},
        partitions_def=partitions,
        description=f"Rows of {known.key}, in mode {table.mode}. Written by the step of {'/'.join(step.path)}.",
        metadata={**about_table(launch.name, table, table_columns(known.spec, table)), "topic": known.key},
    )
