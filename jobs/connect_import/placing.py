"""The tables of a sink that gives each topic a table: by routes, or by a member for each topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from jobs.connect_import.configuration import Configuration
from jobs.connect_import.configured import transforms
from jobs.connect_import.routers import ROUTERS, routed
from jobs.spec.table_templates import rendered, words_of
from resources.config_files.mistakes import Mistakes


@dataclass(frozen=True)
class Placing:
    """The tables of a connector, and which topics go to them.

    Attributes:
        tables: from name (a template if each topic has its own table) to the `route` of its entry, if any.
        each: each topic has its own table (`source.for_each`).
        overrides: for topics whose tables do not follow from the template.
        todo: what a person has to check.
    """

    tables: dict[str, dict[str, Any]]
    each: bool = False
    overrides: dict[str, Any] = field(default_factory=dict)
    todo: list[str] = field(default_factory=list)

    def table_of(self, topic: str) -> str | None:
        """The table of a topic, if each has its own; None: the topic's name does not fit the template."""
        named = self.overrides.get(topic, {}).get("tables", {}).get("table")
        return named or _rendered(next(iter(self.tables)), topic)


def placing(
    configuration: Configuration, template: str, table_of: Callable[[str], str], mapped: Iterable[str]
) -> Placing:
    """
    Args:
        template: the default name of a topic's table.
        table_of: the sink's table for a topic's name after the routers.
        mapped: topics that the sink's options name, if `topics` does not.
    """
    topics = configuration.items("topics")
    tables = {topic: table_of(routed(configuration, topic)) for topic in topics or mapped}
    if topics and (len(topics) == 1 or len(set(tables.values())) < len(tables)):
        by_table: dict[str, list[str]] = {}
        for topic, table in tables.items():
            by_table.setdefault(table, []).append(topic)
        return Placing({t: {"route": {"topics": given}} if len(by_table) > 1 else {} for t, given in by_table.items()})
    others = {t: table for t, table in tables.items() if table != _rendered(template, t)}
    overrides = {topic: {"tables": {"table": table}} for topic, table in others.items()}
    routers = [transform.kind for transform in transforms(configuration) if transform.kind in ROUTERS]
    todo = [f"tables[].table: {kind} gives topics other names; put the parts of a topic's name that it keeps into "
            "the template" for kind in routers if not topics]  # fmt: skip
    return Placing({template: {}}, True, overrides, todo)


def _rendered(template: str, topic: str) -> str | None:
    try:
        return rendered(template, words_of(topic, None))
    except Mistakes:
        return None
