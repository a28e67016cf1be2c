"""Checks the connections that a pipeline file names against the connections file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jobs.iceberg import FORMAT
from resources.config_files.mistakes import Mistake, Path, closest, one_of
from resources.connections import Connections

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec


def named_connections(spec: PipelineSpec) -> Iterator[tuple[Path, str, str]]:
    """Path, name and kind of every connection; those of tables are of the table's kind."""
    source = spec.source
    yield ("source", "connection"), source.connection, "kafka"
    yield ("intermediate", "connection"), spec.intermediate.connection, FORMAT
    yield ("spark",), spec.spark, "spark"
    for part, encoding in (("key", source.key), ("value", source.value)):
        if encoding and encoding.registry:
            yield ("source", part, "registry"), encoding.registry, "schema_registry"
    for topic, own in source.per_topic.items():
        for part, encoding_of_topic in (("key", own.key), ("value", own.value)):
            if encoding_of_topic and encoding_of_topic.registry:
                path = ("source", "per_topic", topic, part, "registry")
                yield path, encoding_of_topic.registry, "schema_registry"
    for number, table in enumerate(spec.tables):
        yield ("tables", number, "connection"), table.connection, table.kind


def connection_mistakes(spec: PipelineSpec, connections: Connections) -> list[Mistake]:
    """Mistakes: names that the connections file lacks, or has for a system of another kind."""
    found = []
    known = connections.kinds()
    for path, name, kind in named_connections(spec):
        right = [other for other, its in known.items() if its == kind]
        if name not in known:
            listed = f"name one of kind {kind} ({', '.join(right) or 'there is none yet'}), or add this one there"
            meant = closest(name, right)
            remedy = f"did you mean `{meant}`?" if meant else listed
            found.append(Mistake(path, f"there is no connection {name!r} in {connections.origin}", remedy))
        elif known[name] != kind:
            remedy = f"name {one_of(right)}" if right else f"add a connection of kind {kind} there"
            what = f"{name!r} is a connection of kind {known[name]} in {connections.origin}, not of kind {kind}"
            found.append(Mistake(path, what, remedy))
    return found
