"""Every boundary of the product is one at which a crash test kills the real command, and each of their cases dies
there: `Project.kill` fails where a boundary is not reached.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest

from jobs import failpoints
from jobs.destinations.registry import kinds
from tests.crash import test_every_boundary, test_members_crash, test_replay_boundaries

ROOT = Path(__file__).parents[2]
FOLDERS = ("jobs", "orchestration", "resources", "tests/duckdb_destination")


def boundaries() -> Iterator[tuple[str, str]]:
    """The file of each boundary in the product, and its name; what is filled in matches any word."""
    for file in chain.from_iterable(sorted((ROOT / folder).rglob("*.py")) for folder in FOLDERS):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and node.func.id in ("failpoint", "failpoint_of_task"):
                yield str(file.relative_to(ROOT)), name_of(node.args[0])


def name_of(argument: ast.expr) -> str:
    if isinstance(argument, ast.Constant):
        return re.escape(str(argument.value))
    if isinstance(argument, ast.Name):
        return re.escape(str(getattr(failpoints, argument.id)))
    assert isinstance(argument, ast.JoinedStr), ast.dump(argument)
    return "".join(name_of(part) if isinstance(part, ast.Constant) else "[^.]+" for part in argument.values)


def cases(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Kind of table (empty: of every kind) and boundary of each case of each test."""
    for name, test in vars(module).items():
        for mark in getattr(test, "pytestmark", ()) if name.startswith("test_") else ():
            names = mark.args[0].split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
            for values in mark.args[1] if mark.name == "parametrize" and "point" in names else ():
                given = dict(zip(names, [values] if len(names) == 1 else values, strict=True))
                yield given.get("kind", ""), given["point"]


MODULES = (test_every_boundary, test_members_crash, test_replay_boundaries)
KILLED = {case for module in MODULES for case in cases(module)}


def is_killed(file: str, name: str) -> bool:
    found = re.search(r"(?:destinations/|batchmerge_)(\w+)/", file)
    kind = found[1] if found and found[1] in kinds() else None
    return any(
        re.fullmatch(name, point) and (kind is None or of == kind or (not of and point.startswith(f"{kind}.")))
        for of, point in KILLED
    )


@pytest.mark.parametrize(("file", "name"), sorted(set(boundaries())))
def test_every_boundary_is_one_where_a_run_is_killed(file: str, name: str) -> None:
    assert is_killed(file, name)


def test_every_name_is_of_a_boundary_and_of_a_case() -> None:
    declared = {name: value for name, value in vars(failpoints).items() if name.isupper() and name[0] != "_"}
    del declared["VARIABLE"]
    names = set(chain(*([v] if isinstance(v, str) else v for v in declared.values())))
    names |= set(chain(*(kind.failpoints for kind in kinds().values())))
    there = [name for _, name in boundaries()]
    assert [name for name in names if not any(re.fullmatch(one, name) for one in there)] == []
    assert names - {point for _, point in KILLED} == set()
