"""What pipelines keep in properties of Iceberg tables, beside the committed state (`jobs.iceberg.history`).

Most are the intermediate table's. A property is of one pipeline and one branch, and its value is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from jobs.batch import PREFIX

T = TypeVar("T")


def property_prefix(pipeline: str, branch: str) -> str:
    return PREFIX + (pipeline if branch == "main" else f"{pipeline}.{branch}") + "."


@dataclass(frozen=True)
class TableProperty(Generic[T]):
    """A table property; `default` is the JSON of its value in a table without it."""

    name: str
    default: str

    def read(self, properties: Mapping[str, str], pipeline: str, branch: str = "main") -> T:
        found: T = json.loads(properties.get(property_prefix(pipeline, branch) + self.name, self.default))
        return found

    def written(self, value: T, pipeline: str, branch: str = "main") -> dict[str, str]:
        return {property_prefix(pipeline, branch) + self.name: json.dumps(value)}


# The first landed batch that retention keeps: it removes all before this one at once.
KEPT_FROM = TableProperty[int]("kept-from", "0")
# By name: the first batch with it, and its new columns (`jobs.landing.new_tables`).
NEW_TABLES = TableProperty[Mapping[str, tuple[int, Sequence[str]]]]("tables", "{}")
# The forms of landed columns, also nested ones, by their paths (`jobs.landing.column_forms`).
COLUMN_FORMS = TableProperty[Sequence[tuple[Sequence[str], str]]]("column-forms", "[]")
REQUIRED_COLUMNS = TableProperty[Sequence[str]]("required-columns", "[]")
# By registry.
SCHEMA_IDS = TableProperty[Mapping[str, Sequence[int | str]]]("schema-ids", "{}")
# Those that were logged.
UNKNOWN_FIELDS = TableProperty[Sequence[str]]("unknown-fields", "[]")
# Open dead letters that the landed batches do not count (`jobs.dead_letters.open_count`).
DEAD_LETTER_BALANCE = TableProperty[int]("letters-before", "0")
# The result of the last search (`jobs.dead_letters.landing_moved_rows`).
MOVED_ROWS = TableProperty[Mapping[str, Any]]("moved-rows", "{}")
# Topics that were recreated since the table's first rows, each with the first batches of its later topics.
RECREATED_TOPICS = TableProperty[dict[str, list[int]]]("recreated-topics", "{}")
# Whether the table lacks landed batches, because a reset of offsets skipped them.
SKIPPED_BATCHES = TableProperty[bool]("skipped-batches", "false")


def dead_letters_sent(role: str) -> TableProperty[bool]:
    """Whether this role (the landing's, or a table's) has ever sent dead letters."""
    return TableProperty(f"{role}-sent", "false")


def stale_before(table: str) -> TableProperty[Mapping[str, Any]]:
    """Dead letters of removed batches that no later change of their key has replaced (`jobs.verify.stale_keys`)."""
    return TableProperty(f"stale-before/{table}", "{}")
