"""The table of crash points is whole: every failpoint has a row, and every row a test that exists."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from jobs import failpoints

ROOT = Path(__file__).parents[3]
ROWS = [
    line.strip("| ").split(" | ")
    for line in (ROOT / "docs/internals.md").read_text().split("## Crash points")[1].splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| point |", "| the design |"))
]


def test_every_row_names_a_test_that_exists() -> None:
    missing = []
    for row in ROWS:
        found = re.findall(r"`([a-z_/]+\.py)`: ((?:`test_\w+`(?:, )?)+)", row[-1])
        names = [(file, name) for file, tests in found for name in re.findall(r"`(test_\w+)`", tests)]
        missing += [row[0]] if not names else []
        missing += [f"{f}::{n}" for f, n in names if f"\ndef {n}(" not in (ROOT / "tests" / f).read_text()]
    assert missing == []


def test_every_failpoint_has_a_row() -> None:
    listed = {name for row in ROWS for name in re.findall(r"`([a-z-]+\.[a-z._*-]+)`", row[0])}
    values = [v for name, v in vars(failpoints).items() if name.isupper() and name != "VARIABLE" and name[0] != "_"]
    points = {p for v in values for p in ([v] if isinstance(v, str) else v)}
    assert points
    assert sorted(p for p in points if not any(fnmatch(p, name) for name in listed)) == []
