"""Product code uses the field's standard words: words that it had instead may not come back."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = sorted(path for folder in ("jobs", "orchestration", "resources") for path in (ROOT / folder).rglob("*.py"))
TEMPLATES = sorted((ROOT / "sql").rglob("*.j2"))

# What to say instead: report, publish, materialize; refused; correct, recover; again, recreated; pending.
GONE = r"told|news|misfits?|strayed|mend|mends|mended|mending|anew|unsaid"
IN_TEXT = re.compile(rf"\b(?:{GONE}|set to fit|run that stays)\b", re.IGNORECASE)
IN_NAMES = re.compile(
    rf"(?:^|_)(?:{GONE}|tells?|fate|together)(?:_|$)|^_?letters$|[a-z](?:Told|Together)$", re.IGNORECASE
)
# A capability that packages of other destinations name; files; the multi-table commit.
ALLOWED_NAMES = {"tells_topics_apart", "tell", "TOGETHER", "commit_together", "commits_together", "merge_together"}

# Python before 3.12 has no tokens within an f-string.
TEXTS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def words(path: Path) -> Iterator[str]:
    """Where a word that is gone is in a name or a text."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.NAME:
                found = IN_NAMES.findall(token.string) if token.string not in ALLOWED_NAMES else []
            elif token.type in TEXTS:
                found = IN_TEXT.findall(token.string)
            else:
                continue
            if found:
                yield f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string[:80]} ({found[0]})"


@pytest.mark.parametrize("name", ["told_by_tasks", "_News", "tell", "_all_told", "EventsTogether", "_letters", "fate"])
def test_a_name_that_is_gone_is_found(name: str) -> None:
    assert IN_NAMES.search(name)


@pytest.mark.parametrize("name", ["dead_letters", "constellation", "recommend", "newsletter", "stray"])
def test_a_name_that_only_looks_like_it_is_not(name: str) -> None:
    assert not IN_NAMES.search(name)


def test_words_that_are_gone_do_not_come_back() -> None:
    assert len(PYTHON) > 400
    assert [line for path in PYTHON for line in words(path)] == []


def test_they_are_not_in_sql_templates_either() -> None:
    assert TEMPLATES
    found = {str(path.relative_to(ROOT)): IN_TEXT.findall(path.read_text()) for path in TEMPLATES}
    assert {name: words for name, words in found.items() if words} == {}
