"""The assets of a pipeline with `for_each` besides its own: a topic and its tables, for every topic that is known.

A run has one step for the landing and one for each entry of `tables`, not one for each of hundreds of tables: Dagster
writes an event for each asset of a run before anything happens. So these assets belong to no step. The steps report
what they did to each, also of topics that nobody knew when the definitions were loaded; such an asset has its history
when it shows up after a reload.
"""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from jobs.destinations.registry import kind_of
from jobs.known_topics import known_members
from jobs.spec.members import Member
from orchestration import names
from orchestration.components.launch import Launch
from orchestration.components.metadata import column_schema, table_columns


def member_assets(launch: Launch, partitions: dg.PartitionsDefinition) -> list[dg.AssetSpec]:
    """Topics in the group `<pipeline>_topics`, tables in one group for each entry of `tables`; none without
    `for_each`."""
    if launch.spec.source.for_each is None:
        return []
    members = known_members(launch.name, launch.spec).members
    return [spec for member in members for spec in _assets(launch, member, partitions)]


def _assets(launch: Launch, member: Member, partitions: dg.PartitionsDefinition) -> Iterator[dg.AssetSpec]:
    connection = launch.spec.source.connection
    topic = dg.AssetSpec(
        dg.AssetKey([connection, member.topic]),
        group_name=f"{launch.name}_topics",
        kinds={"kafka"},
        description="A Kafka topic.",
        metadata={"connection": connection, "topic": member.topic},
    )
    yield topic
    for number, table in enumerate(member.spec.tables):
        entry = launch.spec.tables[number]
        yield dg.AssetSpec(
            names.table_key(table),
            deps=[topic.key, names.table_key(entry)],
            group_name=f"{launch.name}_{entry.kind}",
            kinds=set(kind_of(table).capabilities.asset_kinds),
            owners=launch.spec.owners,
            tags={names.PIPELINE_TAG: launch.name},
            partitions_def=partitions,
            description=f"**{table.mode}**: what topic {member.topic} says. Written by the step of "
            f"{'/'.join(names.table_key(entry).path)}.",
            metadata={
                "dagster/table_name": f"{table.connection}.{table.table}",
                "topic": member.topic,
                "dagster/column_schema": column_schema(table_columns(member.spec, table)),
            },
        )
