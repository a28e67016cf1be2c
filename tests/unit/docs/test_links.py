"""Links, anchors, pictures and paths that the docs and docstrings name exist, and every page can be found."""

from __future__ import annotations

import ast
import pkgutil
import re
from pathlib import Path

import pytest

from tests.kit.guides import DOCS, README, ROOT, pages, prose

PAGES = pages()
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
# What stands in backticks and begins with a folder of ours. `<pipeline>` is no path, and `orders` the readers' own.
_PATH = re.compile(r"`((?:\.ci|docs|jobs|orchestration|resources|sql|tests)/[\w./-]+)`")
_MODULE = re.compile(r"`((?:jobs|orchestration|resources|sql)(?:\.[a-z_]\w*)+)`")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(prose(page)):
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert not link.startswith("http"), f"{link}: no outside addresses, which nobody checks"
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page: Path) -> None:
    text = prose(page)
    missing = [
        p for p in _PATH.findall(text) if not (ROOT / p).exists() and not p.startswith("orchestration/defs/orders")
    ]
    for module in _MODULE.findall(text):
        # The last part may be a function.
        *folders, last = module.split(".")
        file = ROOT.joinpath(*folders)
        known = (file / last).is_dir() or (file / f"{last}.py").exists()
        in_file = file.with_suffix(".py")
        missing += [] if known or (in_file.exists() and f"def {last}(" in in_file.read_text()) else [module]
    assert missing == []


_DOTTED = re.compile(r"`((?:jobs|orchestration|resources)(?:\.\w+)+)`")
SOURCES = [file for part in ("jobs", "resources", "orchestration") for file in sorted((ROOT / part).rglob("*.py"))]


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("jobs.planning.plan", True),
        ("jobs.planning.plan.plan_batch", True),
        ("jobs.planning.plan.x", False),
        ("jobs.plans", False),
    ],
)
def test_a_dotted_name_is_a_module_or_in_one(name: str, there: bool) -> None:
    assert resolves(name) is there


def test_names_in_docstrings_exist() -> None:
    found = [(file, text) for file in SOURCES for text in docstrings(file)]
    paths = {(file, path) for file, text in found for path in _PATH.findall(text) if not (ROOT / path).exists()}
    names = {(file, name) for file, text in found for name in _DOTTED.findall(text) if not resolves(name)}
    assert sorted(f"{file.relative_to(ROOT)}: {name}" for file, name in paths | names) == []


def docstrings(file: Path) -> list[str]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds)]


def test_readme_leads_to_every_page() -> None:
    linked = {link.partition("#")[0] for link in _LINK.findall(README.read_text())}
    assert (
        sorted(str(page.relative_to(ROOT)) for page in DOCS.glob("*.md") if str(page.relative_to(ROOT)) not in linked)
        == []
    )


def test_every_picture_is_shown() -> None:
    shown = {Path(link).name for page in PAGES for link in _LINK.findall(prose(page))}
    assert sorted(picture.name for picture in (DOCS / "pictures").iterdir() if picture.name not in shown) == []


def test_no_machine_is_named() -> None:
    named = [page.name for page in PAGES if re.search(r"/work/|/home/\w|/Users/", page.read_text())]
    assert named == []
