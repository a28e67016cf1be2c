"""The code blocks of our guides (README.md, docs/production.md), so that a test runs what people are told to run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README, PRODUCTION = ROOT / "README.md", ROOT / "docs" / "production.md"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        said: the paragraph right before it.
    """

    language: str
    text: str
    said: str


def blocks(guide: Path, heading: str) -> list[Block]:
    """The code blocks below a heading (without its #), in their order."""
    section = re.split(rf"^#+ {re.escape(heading)}$", guide.read_text(), maxsplit=1, flags=re.MULTILINE)[1]
    # The next heading ends the section; a # in a code block is a comment.
    ends = [at.start() for at in re.finditer(r"^#+ ", section, re.MULTILINE)]
    fenced = [found.span() for found in _FENCE.finditer(section)]
    ends = [end for end in ends if not any(start < end < stop for start, stop in fenced)]
    section = section[: ends[0]] if ends else section
    return [
        Block(found[1], found[2], section[: found.start()].strip().rsplit("\n\n", maxsplit=1)[-1])
        for found in _FENCE.finditer(section)
    ]
