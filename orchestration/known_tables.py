"""The tables that the entries of a pipeline file stand for, as far as they are known without a query to a system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from jobs.members.known_topics import known_members, seen_names
from jobs.spec.members import expand, written_topics
from jobs.spec.new_tables import Named, allowed, named_table
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import Table
from resources.config_files.mistakes import Mistakes


@dataclass(frozen=True)
class EntryTable:
    """One table.

    Attributes:
        entry: the entry of the pipeline file.
        table: the table that the entry stands for.
        spec: what the file says for the table's topic.
        key: the key of its member (`jobs.spec.members.Member`); empty where the entry is one table.
    """

    entry: Table
    table: Table
    spec: PipelineSpec
    key: str = ""


def known_tables(name: str, spec: PipelineSpec, seen: bool = True) -> Iterator[EntryTable]:
    """The known tables by member, in the order of the entries.

    Args:
        seen: also those of topics and names that no file has, but runs have found.
    """
    if spec.source.for_each:
        members = known_members(name, spec) if seen else expand(name, spec, written_topics(spec))
        for member in members.members:
            for entry, table in zip(spec.tables, member.spec.tables, strict=True):
                yield EntryTable(entry, table, member.spec, member.key)
    elif spec.new_tables:
        names = {said: Named(said) for said in seen_names(name)} if seen else {}
        for said, named in allowed(spec, names).items():
            with suppress(Mistakes):  # reported by whoever opens the pipeline
                made = [(entry, named_table(entry, named)) for entry in spec.tables]
                yield from (EntryTable(entry, table, spec, said) for entry, table in made)
    else:
        yield from (EntryTable(entry, entry, spec) for entry in spec.tables)
