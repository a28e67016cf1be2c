"""Our judgement of cron expressions against Dagster's, which takes a whole location down."""

from __future__ import annotations

import pytest
from dagster._utils.schedules import is_valid_cron_string
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.spec.automation import cron_mistakes

RIGHT = [
    "*/5 * * * *",
    "20 3 * * *",
    "0,30 8-18/2 1,15 jan-mar,12 MON-fri",
    "5/10 22-4 l * ?",
    "0 0 ? * sun#1,2#5",
    "0 0 * * l5",
    "0 0 29 2 *",
    "0 0 31 2,3 *",
    "0 0 30-30 2 *",
    "0 0 30,31 2 mon",
    "0 0 * * l5,2#1",
    "0 0 * nov-feb 0-7",
    "@daily",
    "  0  0 * * *",
]
# Our croniter takes them, and the older one that Dagster has of its own does not.
WRONG_FOR_DAGSTER = [
    "0 0 15w * *",
    "0 0 W1 * *",
    "0 0 30 2 mon",
    "0 0 31 feb 1-5",
    "0 0 * * sat#1,sat/5",
    "0 0 * * l6,SAT/2",
]
WRONG = [
    *WRONG_FOR_DAGSTER,
    "0 r * * *",
    "R/12 0 * * *",
    "",
    "* * * *",
    "0 * * * * *",
    "99 * * * *",
    "0 24 * * *",
    "0 0 0 * *",
    "0 0 * 13 *",
    "0 0 * * 8",
    "0 0 * * mond",
    "*/0 * * * *",
    "? * * * *",
    "-5 * * * *",
    "0 0 31 2 *",
    "0 0 30,31 feb *",
    "0 0 * * mon,tue#2",
    "0 0 * * tue#6",
    f"{'9' * 5000} * * * *",
    "@often",
]


def reported(text: str) -> list[str]:
    return [mistake.what.rpartition(" for a schedule: ")[2] for mistake in cron_mistakes(text)]


@pytest.mark.parametrize("text", RIGHT)
def test_right(text: str) -> None:
    assert (reported(text), is_valid_cron_string(text)) == ([], True)


@pytest.mark.parametrize("text", WRONG)
def test_wrong(text: str) -> None:
    assert len(reported(text)) == 1


@pytest.mark.parametrize("text", WRONG_FOR_DAGSTER)
def test_wrong_for_dagster(text: str) -> None:
    assert not is_valid_cron_string(text)


VALUES = st.sampled_from(["*", "0", "1", "2", "5", "6", "7", "12", "23", "30", "31", "59", "60", "l", "?", "feb", "sat",
                          "l5", "l6", "15w", "r"])  # fmt: skip
ITEMS = st.one_of(VALUES, st.builds("{}-{}".format, VALUES, VALUES), st.builds("{}/{}".format, VALUES, VALUES),
                  st.builds("{}#{}".format, VALUES, VALUES))  # fmt: skip
FIELDS = st.one_of(ITEMS, st.builds("{},{}".format, ITEMS, ITEMS))


@settings(max_examples=500, deadline=None)
@example("* * * * sat#1,sat/5")
@example("* * 30 feb sat")
@given(st.lists(st.one_of(st.just("*"), FIELDS), min_size=4, max_size=6).map(" ".join))
def test_what_is_right_here_is_right_for_dagster(text: str) -> None:
    assert reported(text) or is_valid_cron_string(text)
