"""Options for tables that we create, and what is reported of a table that has others than the file."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jobs.verify.drift import schema_drift
from tests.destinations.conftest import MakeStory
from tests.kit.records import COLUMNS, put
from tests.kit.story import Story, Target, on_targets

TIMED = {**COLUMNS, "at": "timestamp not null"}
# Of each kind: options when the table is made, and later; and what differs.
MADE: dict[str, Mapping[str, object]] = {
    "iceberg": {
        "partition_by": ["day(at)", "bucket(4,id)", "truncate(2, name)", "amount"],
        "sort_by": ["id"],
        "properties": {"owner": "we", "format-version": "2"},
        "write": "merge_on_read",
    },
    "clickhouse": {
        "engine": "MergeTree",
        "partition_by": "toYYYYMM(`at`)",
        "ttl": "toDateTime(at)+interval 1 year DELETE WHERE id < 3",
        "order_by": ["id"],
        "settings": {"index_granularity": 4096, "storage_policy": "default"},
    },
    "bigquery": {
        "time_partitioning": "DAY",
        "partition_column": "at",
        "partition_expiration_days": 36_500,
        "cluster_by": ["id"],
        "labels": {"team": "a"},
        "description": "rows",
    },
}
LATER: dict[str, Mapping[str, object]] = {
    "iceberg": {
        "partition_by": ["at"],
        "sort_by": ["name"],
        "properties": {"owner": "they", "format-version": "2"},
        "write": "copy_on_write",
    },
    "clickhouse": {
        "engine": "ReplacingMergeTree",
        "partition_by": "toYYYYMMDD(at)",
        "ttl": "toDateTime(at) + INTERVAL 2 YEAR",
        "order_by": ["name"],
        "settings": {"index_granularity": 1024, "min_bytes_for_wide_part": 7},
    },
    "bigquery": {
        "time_partitioning": "MONTH",
        "partition_column": "at",
        "partition_expiration_days": 30,
        "cluster_by": ["name"],
        "labels": {"team": "b"},
        "description": "other rows",
    },
}


@pytest.fixture(scope="module")
def story(new_story: MakeStory) -> Story:
    story = new_story(columns=TIMED)
    story.produce(put(1, at="2026-01-01T00:00:00Z"))
    story.land()
    return story


def options(of: Mapping[str, object]) -> set[str]:
    """Each of `properties`, `labels` and `settings` is an option of its own."""
    return {
        f"{name}.{inner}" if isinstance(value, dict) else name
        for name, value in of.items()
        for inner in (value if isinstance(value, dict) else [""])
    }


@on_targets("append")
def test_options_that_differ_from_the_table_are_reported(target: Target, story: Story) -> None:
    made, later = MADE.get(target.kind.name, {}), LATER.get(target.kind.name, {})
    table = story.table(target, **made)
    assert table.destination.layout_differences() == [], "there is no table yet"
    table.merge()
    assert table.destination.layout_differences() == []

    changed = table.under(story, **later).destination
    found = changed.layout_differences()
    same = {name for name in made if made[name] == later[name]} | {"properties.format-version"}
    assert {text.split(" is ")[0] for text in found} == options(later) - same
    drift = schema_drift(changed, lambda: story.engine.spark)
    assert set(found) <= set(drift)


@on_targets("append")
def test_a_table_without_any_of_the_options(target: Target, story: Story) -> None:
    table, wanted = story.table(target), LATER.get(target.kind.name, {})
    table.merge()
    found = table.under(story, **wanted).destination.layout_differences()
    assert {text.split(" is ")[0] for text in found} >= options(wanted) - {"write", "properties.format-version"}
    of_every_table = {"write", "order_by", "engine", "settings.index_granularity"}
    assert all("not set in the table" in text or text.split(" is ")[0] in of_every_table for text in found)
