"""Product code and tests use the field's standard words: words that they had instead may not come back."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = sorted(path for folder in ("jobs", "orchestration", "resources") for path in (ROOT / folder).rglob("*.py"))
TEMPLATES = sorted((ROOT / "sql").rglob("*.j2"))
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
DATA_OF_TESTS = sorted((ROOT / "tests").rglob("*.yaml"))

# What to say instead: report, publish, materialize; refused; correct, recover; again, recreated; pending.
GONE = r"told|news|misfits?|strayed|mend|mends|mended|mending|anew|unsaid"
IN_TEXT = re.compile(rf"\b(?:{GONE}|set to fit|run that stays)\b", re.IGNORECASE)
IN_NAMES = re.compile(
    rf"(?:^|_)(?:{GONE}|tells?|fate|together)(?:_|$)|^_?letters$|[a-z](?:Told|Together)$", re.IGNORECASE
)
# In tests instead: output, message, reported; dead letters; a revision.
IN_TEXT_OF_TESTS = re.compile(rf"{IN_TEXT.pattern}|\b(?:the|its|their|no|one|each) letters?\b|\breading again\b", re.I)
IN_NAMES_OF_TESTS = re.compile(
    rf"(?:^|_)(?:{GONE}|said|tells?|fate|reading_again|set_to_fit|run_that_stays)(?:_|$)"
    r"|(?:^|(?<!dead)_)letters?(?:_|$)|[a-z](?:Told|Said)$",
    re.IGNORECASE,
)
# A capability that packages of other destinations name; files; the multi-table commit.
ALLOWED_NAMES = {"tells_topics_apart", "tell", "TOGETHER", "commit_together", "commits_together", "merge_together"}

# Python before 3.12 has no tokens within an f-string.
TEXTS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}

# A topic's name has no quotes, a topic-partition is `orders-0` (`TopicPartition`), as commands take it.
OTHER_SPELLINGS = re.compile(r"\btopic (?:'|\{\w+!r\})|, partition \{|\{[\w.]*topic\}(?:/|, |:)\{[\w.]*partition\}")
STORED = {"jobs/destinations/clickhouse/keeper.py"}


def words(path: Path, in_names: re.Pattern[str], in_text: re.Pattern[str], allowed: set[str]) -> Iterator[str]:
    """Where a word that is gone is in a name or a text."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.NAME:
                found = in_names.findall(token.string) if token.string not in allowed else []
            elif token.type in TEXTS:
                found = in_text.findall(token.string)
            else:
                continue
            if found:
                yield f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string[:80]} ({found[0]})"


@pytest.mark.parametrize("name", ["told_by_tasks", "_News", "tell", "_all_told", "EventsTogether", "_letters", "fate"])
def test_a_name_that_is_gone_is_found(name: str) -> None:
    assert IN_NAMES.search(name)


@pytest.mark.parametrize("name", ["_check_told", "what_is_said", "mended", "letter", "each_letter_once", "_LETTERS"])
def test_a_name_that_is_gone_from_tests_is_found(name: str) -> None:
    assert IN_NAMES_OF_TESTS.search(name)


@pytest.mark.parametrize("name", ["dead_letters", "constellation", "recommend", "newsletter", "stray"])
def test_a_name_that_only_looks_like_it_is_not(name: str) -> None:
    assert not IN_NAMES.search(name)
    assert not IN_NAMES_OF_TESTS.search(name)


def test_words_that_are_gone_do_not_come_back() -> None:
    assert len(PYTHON) > 400
    assert [line for path in PYTHON for line in words(path, IN_NAMES, IN_TEXT, ALLOWED_NAMES)] == []


@pytest.mark.parametrize(
    "text",
    ["topic {topic!r} is", "topic {tp.topic}, partition {tp.partition}", "{tp.topic}/{tp.partition}", "topic 'a'"],
)
def test_another_spelling_of_a_topic_is_found(text: str) -> None:
    assert OTHER_SPELLINGS.search(text)


def test_topics_and_topic_partitions_have_one_spelling() -> None:
    found = {str(path.relative_to(ROOT)): OTHER_SPELLINGS.findall(path.read_text()) for path in PYTHON}
    assert {name: texts for name, texts in found.items() if texts and name not in STORED} == {}


def test_they_are_not_in_tests_either() -> None:
    assert len(TESTS) > 300
    found = [
        line for path in TESTS for line in words(path, IN_NAMES_OF_TESTS, IN_TEXT_OF_TESTS, {"tells_topics_apart"})
    ]
    assert found == []


@pytest.mark.parametrize("paths", [TEMPLATES, DATA_OF_TESTS], ids=["SQL templates", "data of tests"])
def test_they_are_in_no_other_files_either(paths: list[Path]) -> None:
    assert paths
    found = {str(path.relative_to(ROOT)): IN_TEXT.findall(path.read_text()) for path in paths}
    assert {name: words for name, words in found.items() if words} == {}
