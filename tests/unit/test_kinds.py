"""The engine and Dagster's part know kinds of destination by what they can do, never by their names."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

import jobs.entry_points
from jobs.destinations import registry
from jobs.destinations.registry import kind_of, kinds, own_kinds
from jobs.spec.pipeline import PipelineSpec
from resources.errors import ConfigurationError
from tests.kit import specs

ROOT = Path(__file__).parents[2]
# Batches are landed in Iceberg whatever the destinations are, so of that only the destination's names are forbidden.
_LANDING = "jobs/iceberg/"
_OF_DESTINATION = {"iceberg": r"Iceberg(Table|Destination|Kind)\b|destinations\.iceberg"}


def _sources() -> Iterator[Path]:
    left_out = [_LANDING, *(f"jobs/destinations/{name}/" for name in own_kinds())]
    for folder in ("jobs", "orchestration"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not path.relative_to(ROOT).as_posix().startswith(tuple(left_out)):
                yield path


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of identifiers, imports, strings and docstrings (click shows them); no description of an option."""
    prose = set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "description":
            prose.update(ast.walk(node.value))
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if node not in prose:
                yield node.lineno, text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.ImportFrom(module=str(module)):
                yield node.lineno, " ".join([module, *(alias.name for alias in node.names)])
            case ast.Import():
                yield node.lineno, " ".join(alias.name for alias in node.names)
            case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield node.lineno, name


def _names_a_kind(text: str) -> bool:
    patterns = [_OF_DESTINATION.get(name, rf"(?i){name}") for name in own_kinds()]
    return text in kinds() or any(re.search(pattern, text) for pattern in patterns)


def test_no_kind_is_named() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in _sources()
        for line, text in _texts(ast.parse(path.read_text()))
        if _names_a_kind(text)
    ]
    assert not found


def test_names_that_kinds_share_are_in_the_guide() -> None:
    files = Counter(path.stem for name in own_kinds() for path in (ROOT / "jobs/destinations" / name).glob("*.py"))
    guide = (ROOT / "docs/write-a-destination.md").read_text()
    assert not [name for name, times in files.items() if times > 1 and name != "__init__" and f"`{name}`" not in guide]


def _spec(kind: str, mode: str) -> PipelineSpec:
    return specs.spec(specs.table(kind, mode), key="id")


@pytest.mark.parametrize("name", own_kinds())
def test_every_mode_that_a_kind_declares_is_one_that_its_table_takes(name: str) -> None:
    kind = kinds()[name]
    for mode in ("append", "upsert", "upsert_delete", "delete"):
        if mode in kind.capabilities.modes:
            (table,) = _spec(name, mode).tables
            assert kind_of(table) is kind
            assert table.on_usual_connection
            assert kind.statement(_spec(name, mode), table).strip() or mode == "append"
            assert "id" in [c.name for c in kind.columns(_spec(name, mode), table)]
        else:
            with pytest.raises(ValueError, match=mode):
                _spec(name, mode)


class _Package:
    """An installed package, as far as an entry point names it."""

    def __init__(self, name: str) -> None:
        self.name = name


def _point(name: str, value: str, package: str) -> EntryPoint:
    point = EntryPoint(name, value, registry.GROUP)
    object.__setattr__(point, "dist", _Package(package))
    return point


OURS = [_point(n, f"jobs.destinations.{n}.kind:KIND", "batchmerge") for n in ("bigquery", "clickhouse", "iceberg")]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "installation is older than its code"),
        ([*OURS, _point("csv", "no.such.module:KIND", "batchmerge-csv")], "'csv' of batchmerge-csv: .*no.such.module"),
        ([*OURS, _point("csv", "json:loads", "batchmerge-csv")], "gives a function, not a .*Kind"),
        ([*OURS, _point("csv", "jobs.destinations.iceberg.kind:KIND", "batchmerge-csv")], "its name is 'iceberg'"),
        ([*OURS, _point("iceberg", "jobs.destinations.iceberg.kind:KIND", "other")], "batchmerge and other both bring"),
    ],
)
def test_a_kind_that_does_not_fit_is_an_error_that_names_its_package(
    points: list[EntryPoint], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs.entry_points, "entry_points", lambda **_: EntryPoints(points))
    with pytest.raises(ConfigurationError, match=message):
        registry._installed.__wrapped__()
