"""The Markdown of the project (README, CONTRIBUTING, CHANGELOG, docs) and its code blocks, which tests run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
TUTORIAL, PRODUCTION, SECURITY = DOCS / "tutorial.md", DOCS / "production.md", DOCS / "security.md"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        line: where it begins in its page, from 1.
        heading: the nearest one above it.
        introduction: the paragraph right before it.
    """

    page: Path
    line: int
    heading: str
    language: str
    text: str
    introduction: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    return [README, CONTRIBUTING, ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]


def all_blocks(page: Path) -> list[Block]:
    """Every code block of a page, in their order."""
    text = page.read_text()
    fenced = [found.span() for found in _FENCE.finditer(text)]
    # A # in a code block is a comment.
    headings = [at for at in _HEADING.finditer(text) if not any(a < at.start() < b for a, b in fenced)]
    blocks = []
    for found in _FENCE.finditer(text):
        above = [at for at in headings if at.start() < found.start()]
        introduction = text[above[-1].end() if above else 0 : found.start()].strip().rsplit("\n\n", maxsplit=1)[-1]
        line = text[: found.start()].count("\n") + 1
        blocks.append(Block(page, line, above[-1][1] if above else "", found[1], found[2], introduction))
    return blocks


def blocks(page: Path, heading: str) -> list[Block]:
    """The code blocks below a heading (without its #), up to the next one."""
    found = [block for block in all_blocks(page) if block.heading == heading]
    assert found, f"{page.name} has no code blocks below {heading!r}"
    return found


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text())
