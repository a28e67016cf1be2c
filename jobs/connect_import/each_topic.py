"""`overrides` of the pipeline file for single topics, if each topic has its own table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jobs.connect_import import connect
from jobs.connect_import.chain import Chain
from jobs.connect_import.going_on import GoingOn
from jobs.connect_import.known import NOT_NULL
from jobs.connect_import.unwrapping import TARGET


@dataclass(frozen=True)
class EachTopic:
    """
    Attributes:
        tables: the known tables by topic.
        part: the entry of `tables` for all topics, from the connector's options.
        written: that entry as it is written for unknown tables.
        source: the `source` part for all topics.
        keyed: the key is the record's, and its columns are left to the records.
    """

    tables: Mapping[str, GoingOn]
    part: Mapping[str, Any]
    written: Mapping[str, Any]
    source: Mapping[str, Any]
    keyed: bool

    @cached_property
    def _followed(self) -> dict[str, tuple[Chain, dict[str, Any]]]:
        """The transforms, applied to the records of each topic; and its `source` part."""
        return {topic: self._follow(table) for topic, table in self.tables.items()}

    @property
    def columns(self) -> dict[str, str]:
        """The columns of all topics' records."""
        return {c: kind for chain, _ in self._followed.values() for c, kind in chain.read_columns.items()}

    def overrides(self, names: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """`overrides`; `names` are names of tables that do not follow from the template, by topic."""
        found = {topic: self._override(topic, table) for topic, table in self.tables.items()}
        for topic, override in names.items():
            here = found.setdefault(topic, {})
            found[topic] = {**here, "tables": {**override["tables"], **here.get("tables", {})}}
        return {topic: {part: text for part, text in one.items() if text} for topic, one in found.items()}

    def todo(self, said: Collection[str]) -> list[str]:
        """What a person has to check, besides what is said of all topics."""
        found, of_chains = list[str](), dict[str, list[str]]()
        for topic, (chain, _) in self._followed.items():
            found += self.tables[topic].todo(chain)
            for line in (*chain.todo, *chain.guesses):
                of_chains.setdefault(line, []).append(topic)
        return [*found, *(f"{', '.join(topics)}: {line}" for line, topics in of_chains.items() if line not in said)]

    def _follow(self, table: GoingOn) -> tuple[Chain, dict[str, Any]]:
        chain = table.follow().chain
        chain.drop(TARGET)
        chain.open = self.part["evolve"]["add_columns"] and connect.takes_new_fields(chain)
        return chain, connect.source(table.sink.configuration, chain, None)[0]

    def _override(self, topic: str, table: GoingOn) -> dict[str, Any]:
        chain, own = self._followed[topic]
        value = {"columns": own["value"].get("columns", {}), "unknown_fields": "add" if chain.open else "ignore"}
        if own["value"].get("exclude") != self.source["value"].get("exclude"):
            value["exclude"] = own["value"].get("exclude", [])
        if own["value"].get("envelope") != self.source["value"].get("envelope"):
            value["envelope"] = own["value"].get("envelope")
        source: dict[str, Any] = {"value": value}
        if own.get("transform") != self.source.get("transform"):
            source["transform"] = own.get("transform")
        (name,) = table.tables
        entry = table.entry({"evolve": {}, **self.part, "table": name}, chain)
        changed = {option: text for option, text in entry.items() if self.written.get(option) != text}
        found = {"source": source, "tables": {option: text for option, text in changed.items() if option != "table"}}
        return self._with_key(found, table)

    def _with_key(self, found: dict[str, Any], table: GoingOn) -> dict[str, Any]:
        columns = table.key_columns or {c: table.columns[c].removesuffix(NOT_NULL) for c in table.key}
        if not self.keyed or not columns:
            return found
        whole = self.source["key"].get("column")
        found["source"]["key"] = {"columns": columns}
        return {**found, "changes": {"key": {"columns": [whole] if whole else list(columns)}}}
