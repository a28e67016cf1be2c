"""Reads one `defs.yaml`: its pipeline, or every mistake in it with line and column."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.iceberg import FORMAT
from jobs.spec.members import expand, written_topics
from jobs.spec.pipeline import NAME, PipelineSpec
from resources.config_files.mistakes import Mistake, closest, did_you_mean, one_of, shown_value
from resources.config_files.mistakes import Path as InFile
from resources.config_files.models import examine
from resources.config_files.positions import YamlFile, read_yaml_file, shown_file
from resources.connections import REGISTRIES, Connections
from resources.errors import ConfigurationError

TYPE = "batchmerge.KafkaPipeline"
# Earlier names still work.
_TYPES = (TYPE, "orchestration.components.KafkaPipeline", "orchestration.components.pipeline.KafkaPipeline")
_ROOT = ("attributes",)
# The keys that Dagster allows besides type and attributes.
_KEYS = ("type", "attributes", "template_vars_module", "requirements", "post_processing")
# Besides Python's keywords: names that Dagster does not allow for jobs.
_RESERVED = ("context", "conf", "config", "meta", "arg_dict", "dict", "input_arg_dict", "output_arg_dict",
             "int", "str", "float", "bool", "input", "output", "type")  # fmt: skip


@dataclass(frozen=True)
class PipelineFile:
    """A valid pipeline file.

    Attributes:
        name: the pipeline's name, which is that of the file's folder.
    """

    name: str
    spec: PipelineSpec
    yaml: YamlFile

    def check_connections(self, connections: Connections) -> None:
        """Requires that every connection that the file names is in the connections file, with the right kind.

        Raises:
            WrongFile: one line a mistake.
        """
        found = [mistake.below(_ROOT) for mistake in _connection_mistakes(self.spec, connections)]
        if found:
            raise self.yaml.refusal(found, _ROOT)


def is_name(text: str) -> bool:
    """Whether a pipeline can have this name."""
    return NAME.fullmatch(text) is not None and not keyword.iskeyword(text) and text not in _RESERVED


def read_pipeline_file(path: Path) -> PipelineFile:
    """The pipeline of one `defs.yaml`.

    Raises:
        ConfigurationError: it cannot be read. WrongFile: it is not a valid pipeline file; one line a mistake.
    """
    name = path.parent.name
    if not is_name(name):
        raise ConfigurationError(
            f"the folder's name {name!r} cannot be a pipeline's name",
            where=shown_file(path),
            remedy="use at most 63 lower case letters, digits and _, begin with a letter, and take no word of Python's",
        )
    found = read_yaml_file(path)
    spec, mistakes = _judge(name, found.data)
    mistakes = [*found.mistakes, *mistakes]
    if spec is None or mistakes:
        raise found.refusal(mistakes, _ROOT)
    return PipelineFile(name, spec, found)


def is_pipeline(path: Path) -> bool:
    """Whether a `defs.yaml` is, or was meant to be, a pipeline; other Dagster components have such files too.

    Raises:
        ConfigurationError: it cannot be read. WrongFile: it is not YAML.
    """
    document = read_yaml_file(path).data
    kind = document.get("type") if isinstance(document, dict) else None
    return not isinstance(kind, str) or closest(kind.rsplit(".", 1)[-1], [TYPE.rsplit(".", 1)[-1]]) is not None


def _judge(name: str, document: Any) -> tuple[PipelineSpec | None, list[Mistake]]:
    """The pipeline that a document declares, and its mistakes."""
    if not isinstance(document, dict):
        begin = f"begin with `type: {TYPE}` and `attributes:`"
        what = "the file is empty" if document is None else "it does not begin with a map (lines of `name: value`)"
        return None, [Mistake((), what, begin)]
    found = [
        Mistake((str(key),), "there is no such key", did_you_mean(str(key), _KEYS), at_key=True)
        for key in document
        if key not in _KEYS
    ]
    if "type" not in document:
        found.append(Mistake(("type",), "it is missing", f"add `type: {TYPE}`", at_key=True))
    elif document["type"] not in _TYPES:
        what = f"{shown_value(document['type'])} is not a pipeline"
        found.append(Mistake(("type",), what, f"write `type: {TYPE}`"))
    attributes = document.get("attributes")
    if not isinstance(attributes, dict):
        what = "it is missing" if attributes is None else f"{shown_value(attributes)} is not a map"
        return None, [*found, Mistake(_ROOT, what, "write the pipeline's options below `attributes:`", at_key=True)]
    examined = examine(PipelineSpec, attributes)
    mistakes = [*examined.mistakes, *(_of_topics(name, examined.value) if examined.value else [])]
    return examined.value, [*found, *(mistake.below(_ROOT) for mistake in mistakes)]


def _of_topics(name: str, spec: PipelineSpec) -> list[Mistake]:
    """With `source.for_each`: the mistakes for the topics that the file names; others are only known in Kafka."""
    if spec.source.for_each is None:
        return []
    return [mistake for refused in expand(name, spec, written_topics(spec)).refused for mistake in refused.mistakes]


def _named_connections(spec: PipelineSpec) -> Iterator[tuple[InFile, str, Sequence[str]]]:
    """Path, name and possible kinds of every connection; those of tables are of the table's kind."""
    yield ("source", "connection"), spec.source.connection, ["kafka"]
    yield ("intermediate", "connection"), spec.intermediate.connection, [FORMAT]
    yield ("spark",), spec.spark, ["spark"]
    for path, encoding in spec.source.encodings:
        if encoding.registry:
            yield ("source", *path, "registry"), encoding.registry, REGISTRIES
    for number, table in enumerate(spec.tables):
        yield ("tables", number, "connection"), table.connection, [table.kind]


def _connection_mistakes(spec: PipelineSpec, connections: Connections) -> Iterator[Mistake]:
    """Mistakes: names that the connections file lacks, or has for a system of another kind."""
    known = connections.kinds()
    for path, name, possible in _named_connections(spec):
        kind, right = one_of(possible), [other for other, its in known.items() if its in possible]
        if name not in known:
            listed = f"name one of kind {kind} ({', '.join(right) or 'there is none yet'}), or add this one there"
            what = f"there is no connection {name!r} in {connections.origin}"
            yield Mistake(path, what, did_you_mean(name, right, listed))
        elif known[name] not in possible:
            what = f"{name!r} is a connection of kind {known[name]} in {connections.origin}, not of kind {kind}"
            yield Mistake(path, what, f"name {one_of(right)}" if right else f"add a connection of kind {kind} there")
