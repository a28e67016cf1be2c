"""YAML with the line and column of everything in it, and with mistakes of YAML itself in plain words."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from resources.config_files.mistakes import Mistake, Path, WrongFile
from resources.errors import ConfigurationError

_TIME = "tag:yaml.org,2002:timestamp"
_MERGE = "tag:yaml.org,2002:merge"
# Levels of nesting, at most.
_DEEPEST = 50
# What PyYAML says (beginning of its text) → what is wrong, and what to do.
_SYNTAX = {
    r"found character '\\t'": ("a tab where YAML allows spaces only", "indent by spaces"),
    r"mapping values are not allowed": (
        "a second `:` in one line, or a line that is indented too far",
        "put a value that holds `: ` in quotes, and let keys of one map begin in the same column",
    ),
    r"expected <block end>": (
        "the line does not continue what is above it",
        "let keys of one map, and the dashes of one list, begin in the same column",
    ),
    r"could not find expected ':'": ("a key without `:`", "write `key: value`"),
    r"expected ',' or '([\]}])'": (
        "a bracket that is not closed, or a comma that is missing",
        "write `{0}` or `,`; put a value that holds a comma or `: ` in quotes",
    ),
    r"expected the node content": ("a value is missing, or a bracket is not closed", "write it"),
    r"found unexpected end of stream": ("a quote that is not closed", "close it"),
    r"found undefined alias '?([^']*)'?": ("`*{0}` is defined nowhere above", "write `&{0}` where it is defined"),
    r"could not determine a constructor for the tag '?([^']*)'?": ("the tag `{0}` is not known", "leave it out"),
    r"found character '(.)' that cannot start": ("a value cannot begin with `{0}`", "put it in quotes"),
    r"but found another document": ("a second document", "put each pipeline into a folder of its own"),
    r"found unknown escape character '(.*)'": (
        "`\\{0}` means nothing between double quotes",
        "use single quotes, or write `\\\\{0}`",
    ),
    r"found unhashable key": ("a key that is a list or a map", "put it in quotes"),
    r"none of the type '(.*)'": ("a value that is none of the type `{0}`", "correct it, or put it in quotes"),
    r"too deep": (f"more than {_DEEPEST} levels, or an alias inside itself", "take levels out"),
}


@dataclass(frozen=True)
class LineAndColumn:
    """Where something is in the text; both from 1."""

    line: int
    column: int


@dataclass
class YamlFile:
    """A file of YAML as it was read.

    Attributes:
        path: the file.
        data: what it holds; None for an empty one.
        mistakes: keys that stand twice.
        keys, values: where they begin, by path (numbers of items as text).
    """

    path: FilePath
    data: Any = None
    mistakes: list[Mistake] = field(default_factory=list)
    keys: dict[tuple[str, ...], LineAndColumn] = field(default_factory=dict)
    values: dict[tuple[str, ...], LineAndColumn] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The file's path as it is shown: from the working directory where it is below that."""
        return shown_file(self.path)

    def place(self, mistake: Mistake) -> LineAndColumn:
        """Where a mistake is; for something that is missing, where its surroundings begin."""
        path = tuple(map(str, mistake.path))
        if not mistake.at_key and path in self.values:
            return self.values[path]
        while path and path not in self.keys and path not in self.values:
            path = path[:-1]
        return self.keys.get(path) or self.values.get(path) or LineAndColumn(1, 1)

    def refusal(self, found: Iterable[Mistake], root: Path = ()) -> WrongFile:
        """One error for all of them, in the order of the file.

        Args:
            root: the part of the file that the paths leave out when they are shown.
        """
        placed = []
        for mistake in dict.fromkeys(found):
            place = self.place(mistake)
            inside = len(mistake.path) > len(root) and mistake.path[: len(root)] == root
            shown = mistake.path[len(root) :] if inside else mistake.path
            written = Mistake(shown, mistake.what, mistake.remedy)
            placed.append((place.line, place.column, f"{self.shown}:{place.line}:{place.column}: {written.sentence}"))
        return WrongFile("\n".join(line for *_, line in sorted(placed)), where=str(self.path))


def shown_file(path: FilePath) -> str:
    inside = os.path.relpath(path)
    return str(path) if inside.startswith("..") else inside


def read_yaml_file(path: FilePath) -> YamlFile:
    """
    Raises:
        ConfigurationError: the file cannot be read. WrongFile: it is not YAML.
    """
    try:
        return read_yaml(path, path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigurationError(f"cannot be read: {problem.strerror}", where=shown_file(path)) from None
    except UnicodeDecodeError as problem:
        what = f"it is not UTF-8 at byte {problem.start}"
        raise ConfigurationError(what, where=shown_file(path), remedy="save it as UTF-8") from None


def read_yaml(path: FilePath, text: str) -> YamlFile:
    """What a text says, and where.

    Raises:
        WrongFile: it is not YAML.
    """
    found = YamlFile(path)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            found.mistakes += _twice((), node)
            found.data = loader.construct_document(node)
            _locate(found, (), node)
    except yaml.MarkedYAMLError as problem:
        _refuse(found, problem)
    except RecursionError:
        _refuse(found, yaml.MarkedYAMLError(problem="too deep"))
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        column = problem.position - text.rfind("\n", 0, problem.position)
        found.values[()] = LineAndColumn(line, column)
        raise found.refusal([Mistake((), "a character that YAML does not allow", "take it out")]) from None
    return found


class _Loader(yaml.SafeLoader):
    """Reads times as text, as Dagster's own reader does: the same file means the same everywhere."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIME]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        """PyYAML takes a value for what it looks like, or for what its tag says, and stumbles where it is not."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError):
            problem = f"none of the type '{node.tag.rpartition(':')[2]}'"  # the value may be a secret
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


def _locate(found: YamlFile, path: tuple[str, ...], node: Node) -> None:
    """Notes where everything below a node begins. Merge keys (`<<`) were flattened when it was constructed."""
    if path in found.values:  # a key that stands twice: the last one counts
        for places in (found.keys, found.values):
            for inside in [p for p in places if len(p) > len(path) and p[: len(path)] == path]:
                del places[inside]
    found.values[path] = _place(node)
    if isinstance(node, MappingNode):
        for key, value in node.value:
            name = (*path, str(key.value))
            found.keys[name] = _place(key)
            _locate(found, name, value)
    elif isinstance(node, SequenceNode):
        for number, item in enumerate(node.value):
            _locate(found, (*path, str(number)), item)


def _twice(path: Path, node: Node) -> list[Mistake]:
    """Keys that stand twice in one map, of which YAML silently takes the last one.

    Raises:
        MarkedYAMLError: it is too deep, as it is where an alias is inside itself.
    """
    found: list[Mistake] = []
    if len(path) > _DEEPEST:
        raise yaml.MarkedYAMLError(problem="too deep", problem_mark=node.start_mark)
    if isinstance(node, MappingNode):
        seen: dict[str, LineAndColumn] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode) or key.tag == _MERGE:
                continue
            name = (*path, key.value)
            if key.value in seen:
                text = f"the key stands twice: in line {seen[key.value].line} too"
                found.append(Mistake(name, text, "keep one of them", at_key=True))
            seen.setdefault(key.value, _place(key))
            found += _twice(name, value)
    elif isinstance(node, SequenceNode):
        for number, item in enumerate(node.value):
            found += _twice((*path, number), item)
    return found


def _place(node: Node) -> LineAndColumn:
    return LineAndColumn(node.start_mark.line + 1, node.start_mark.column + 1)


def _refuse(found: YamlFile, problem: yaml.MarkedYAMLError) -> NoReturn:
    mark = problem.problem_mark or problem.context_mark
    # A quote or bracket that is never closed is reported where it begins.
    if problem.context_mark and re.search(r"end of stream|expected ',' or", problem.problem or ""):
        mark = problem.context_mark
    if mark:
        found.values[()] = LineAndColumn(mark.line + 1, mark.column + 1)
    raise found.refusal([_syntax(problem)]) from None


def _syntax(problem: yaml.MarkedYAMLError) -> Mistake:
    said = " ".join(part for part in (problem.problem, problem.note) if part)
    for pattern, (what, remedy) in _SYNTAX.items():
        match = re.search(pattern, said)
        if match:
            return Mistake((), "not YAML: " + what.format(*match.groups()), remedy.format(*match.groups()))
    return Mistake((), f"not YAML: {said}", "correct the line, or the one above it")
