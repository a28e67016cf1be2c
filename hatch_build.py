"""Puts the packages of a checkout below `batchmerge` in a wheel: `jobs/batch.py` becomes `batchmerge/jobs/batch.py`,
and in it `from jobs.offsets import Offsets` becomes `from batchmerge.jobs.offsets import Offsets`.

So an installed Batchmerge takes one top-level name, whatever modules a project has. It is done here, and not by an
import hook, so that what is installed is plain Python to Spark's workers, debuggers and type checkers. A string that
names one of our modules would be missed: it stops the build.
"""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "batchmerge"
PARTS = ("jobs", "orchestration", "resources", "sql")
# The type in pipeline files of before.
_OLD = "orchestration.components"
_MODULE = re.compile(rf"(?:^|\b(?:from|import) )((?:{'|'.join(PARTS)})(?:\.\w+)+)")


class BelowOnePackage(BuildHookInterface):  # type: ignore[type-arg]
    """An editable installation is of the checkout as it is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._made = tempfile.mkdtemp()
        for part in (PACKAGE, *PARTS):
            below = PACKAGE if part == PACKAGE else f"{PACKAGE}/{part}"
            copied = Path(self._made, part)
            shutil.copytree(Path(self.root, part), copied, ignore=shutil.ignore_patterns("__pycache__"))
            for file in copied.rglob("*.py"):
                try:
                    file.write_text(below_package(file.read_text(), Path(self.root)))
                except ValueError as problem:
                    raise ValueError(f"{file.relative_to(self._made)}, {problem}") from None
            build_data["force_include"][str(copied)] = below

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del build_data, artifact_path
        if version != "editable":
            shutil.rmtree(self._made)


def below_package(source: str, root: Path) -> str:
    """The source of a module with its imports from PARTS as imports from below PACKAGE.

    Raises:
        ValueError: it names a module of ours in another way.
    """
    lines, tree = source.splitlines(keepends=True), ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _top(node.module or "") in PARTS:
            _replace(lines, node, "from ", f"from {PACKAGE}.")
        elif isinstance(node, ast.Import) and any(_top(alias.name) in PARTS for alias in node.names):
            if len(node.names) > 1 or "." in node.names[0].name:
                raise ValueError(f"line {node.lineno}: write `from … import …`")
            _replace(lines, node, "import ", f"from {PACKAGE} import ")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            found = _MODULE.search(node.value)
            if found and _exists(root, found.group(1)) and not found.group(1).startswith(_OLD):
                raise ValueError(f"line {node.lineno}: name {found.group(1)} by `__package__`")
    return "".join(lines)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _exists(root: Path, module: str) -> bool:
    path = root.joinpath(*module.split(".")[:2])
    return path.is_dir() or path.with_suffix(".py").exists()


def _replace(lines: list[str], node: ast.stmt, old: str, new: str) -> None:
    at, line = node.col_offset, lines[node.lineno - 1]
    assert line[at:].startswith(old), line
    lines[node.lineno - 1] = line[:at] + new + line[at + len(old) :]
