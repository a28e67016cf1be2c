"""Conflicts between pipeline files that are each valid alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobs.spec.members import SEPARATOR
from jobs.spec.pipeline_file import PipelineFile
from jobs.spec.table_templates import each, is_alone
from jobs.spec.tables import Table
from orchestration.known_tables import known_tables
from orchestration.names import further_jobs
from resources.config_files.mistakes import Mistake
from resources.errors import ConfigurationError


@dataclass(frozen=True)
class Conflict:
    """Two pipelines that cannot be used together, and why."""

    pipelines: tuple[str, str]
    problem: ConfigurationError


def conflicts(files: Sequence[PipelineFile], seen: bool = True) -> list[Conflict]:
    """
    Args:
        seen: also check the tables of topics and names that no file has, but runs have found. Without it a new topic
            stops no other pipeline: its own run refuses it (`jobs.only_writer`).
    """
    return [*_names_twice(files), *_names_of_members(files), *_names_of_jobs(files), *_tables_twice(files, seen)]


def _names_twice(files: Sequence[PipelineFile]) -> Iterator[Conflict]:
    """Folders of one name in different folders."""
    seen = dict[str, PipelineFile]()
    for file in files:
        other = seen.setdefault(file.name, file)
        if other is not file:
            problem = ConfigurationError(
                f"there is another pipeline {file.name} ({other.yaml.shown})",
                where=file.yaml.shown,
                remedy="give one of the folders another name",
            )
            yield Conflict((other.name, file.name), problem)


def _names_of_members(files: Sequence[PipelineFile]) -> Iterator[Conflict]:
    """Pipelines whose name could be that of a topic of another one: `<pipeline>__<topic>`."""
    prefixes = {f"{file.name}{SEPARATOR}": file.name for file in files if file.spec.source.for_each}
    for file in files:
        for prefix, other in prefixes.items():
            if file.name.startswith(prefix):
                problem = ConfigurationError(
                    f"its name begins with {prefix}, like those of the topics of pipeline {other}",
                    where=f"pipeline {file.name}",
                    remedy=f"give it a folder whose name does not begin with {prefix}",
                )
                yield Conflict((other, file.name), problem)


def _names_of_jobs(files: Sequence[PipelineFile]) -> Iterator[Conflict]:
    """Pipelines whose job would have the name of a job of another one: Dagster would load neither."""
    names = {file.name for file in files}
    for other in files:
        for name in sorted(names.intersection(further_jobs(other.name, other.spec))):
            problem = ConfigurationError(
                f"pipeline {other.name} has a job of this name",
                where=f"pipeline {name}",
                remedy="give the folder another name",
            )
            yield Conflict((other.name, name), problem)


@dataclass(frozen=True)
class _TableEntry:
    """A table that a pipeline file writes, with the number of its entry."""

    file: PipelineFile
    entry: int
    table: str

    @property
    def line(self) -> str:
        place = self.file.yaml.place(self._mistake(""))
        return f"{self.file.yaml.shown}:{place.line}"

    def refused_for(self, other: _TableEntry, more: int) -> Conflict:
        """The error at this entry: the other pipeline writes the same table, and `more` further tables of the entry."""
        pipelines = other.file.name, self.file.name
        named = f"{self.table} and {more} more are tables" if more else f"{self.table} is a table"
        what = f"pipeline {self.file.name} cannot write it: {named} of pipeline {other.file.name} ({other.line})"
        remedy = "write to a table of its own, or read both sources in one pipeline"
        if "{" in self.table:
            what = f"pipeline {other.file.name} names its tables so too ({other.line}), and Dagster has one asset for "
            what += f"all tables of {self.table}"
            remedy = "read all the topics in one pipeline, or let something outside the braces differ"
            if is_alone(self.table):
                remedy = "read all the topics in one pipeline, or give one of them a connection of another name"
        return Conflict(pipelines, self.file.yaml.refusal([self._mistake(what, remedy)], ("attributes",)))

    def _mistake(self, what: str, remedy: str = "") -> Mistake:
        return Mistake(("attributes", "tables", self.entry, "table"), what, remedy)


def _tables_twice(files: Sequence[PipelineFile], seen: bool) -> Iterator[Conflict]:
    """Tables that two pipelines write: one conflict for an entry, about its first such table."""
    taken = dict[tuple[str, str, str], _TableEntry]()
    for file in files:
        found = dict[tuple[str, int], list[tuple[_TableEntry, _TableEntry]]]()
        for number, table in _tables(file, seen):
            written = _TableEntry(file, number, table.table)
            other = taken.setdefault((table.kind, table.connection, each(table.table)), written)
            if other.file is not file:
                found.setdefault((other.file.name, number), []).append((written, other))
        for (written, other), *more in found.values():
            yield written.refused_for(other, len(more))


def _tables(file: PipelineFile, seen: bool) -> Iterator[tuple[int, Table]]:
    """The entries of the file, each with its number; then the known tables that they stand for."""
    entries = file.spec.tables
    yield from enumerate(entries)
    if file.spec.many_tables:
        yield from ((entries.index(one.entry), one.table) for one in known_tables(file.name, file.spec, seen))
