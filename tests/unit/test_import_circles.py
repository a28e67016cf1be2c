"""No modules of the product import each other in a circle, not even inside functions or for their types alone."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("jobs", "orchestration", "resources", "sql")
# What kinds are given and give: named as types on both sides of the seam.
SEAM = ("jobs.spec", "jobs.destinations.base", "jobs.connect_import.sink")


def _modules() -> dict[str, Path]:
    paths = [path for top in TOP for path in (ROOT / top).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def _of_types_alone(tree: ast.Module) -> set[ast.AST]:
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    return {inside for block in blocks for inside in ast.walk(block)}


@cache
def _imports() -> dict[str, set[str]]:
    """Each module with those that it imports."""
    modules = _modules()
    return {name: set(_imported(path, modules)) - {name} for name, path in modules.items()}


def _imported(path: Path, modules: Collection[str]) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    types = _of_types_alone(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        if isinstance(node, ast.ImportFrom) and node.module and not (node in types and node.module.startswith(SEAM)):
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from named.intersection(modules) or {node.module}.intersection(modules)


def test_no_modules_import_each_other() -> None:
    try:
        TopologicalSorter(_imports()).prepare()
    except CycleError as found:
        circle = " imports ".join(reversed(found.args[1]))
        raise AssertionError(f"move what both need to a module of its own: {circle}") from None


def test_what_is_beneath_does_not_import_what_is_above() -> None:
    above = {"sql": ("jobs", "orchestration", "resources"), "resources": ("orchestration",), "jobs": ("orchestration",)}
    wrong = [
        f"{name} imports {other}"
        for name, imported in _imports().items()
        for other in imported
        if other.split(".")[0] in above.get(name.split(".")[0], ())
    ]
    assert not wrong
