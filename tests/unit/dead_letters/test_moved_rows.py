"""Which batches are searched for rows with a new key: only where something has come that these wait for.

And which state of a table can say what stood under an old key, though records were read again meanwhile.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from jobs.batch import LandedBatch, LandedBatches, Moves
from jobs.dead_letters.landing_moved_rows import Search, can_be_landed
from jobs.dead_letters.moved_rows import last_reading_before, least_batch
from resources.errors import BatchmergeError, ConfigurationError, Unavailable
from tests.kit.batches import landed


def batches(*moves: tuple[int, int], first: int = 1) -> list[LandedBatch]:
    """Of each how many rows left their key, and how many wait for values."""
    return [replace(landed(first + n), moves=Moves(*found)) for n, found in enumerate(moves)]


NOW = 1_000
NOTHING, LEFT, WAITS = (0, 0), (1, 0), (0, 1)


@pytest.mark.parametrize(
    ("last", "known", "wanted"),
    [
        pytest.param(Search(), [], None, id="nothing is landed"),
        pytest.param(Search(), batches(NOTHING, LEFT), None, id="none waits"),
        pytest.param(Search(), batches(NOTHING, WAITS, NOTHING), (2, 3), id="one waits, and its run died"),
        pytest.param(Search("c2"), batches(NOTHING, WAITS), None, id="it was looked for"),
        pytest.param(Search("c2", 2), batches(NOTHING, WAITS, NOTHING), None, id="nothing new for one that waits on"),
        pytest.param(Search("c2", 2), batches(NOTHING, WAITS, LEFT), (2, 3), id="what it waits for may have come"),
        pytest.param(Search("c2"), batches(NOTHING, WAITS, LEFT), None, id="all before were found"),
        pytest.param(Search("c3"), batches(WAITS, WAITS, LEFT, (1, 1)), (4, 4), id="only a new one waits"),
        pytest.param(Search("c2", 1), batches(WAITS, WAITS, (1, 1)), (1, 3), id="an old one and a new one"),
        pytest.param(Search("c2", 1), batches(LEFT, first=5), None, id="what waits is of batches that are removed"),
        pytest.param(Search("c9", 1), batches(WAITS, NOTHING), (1, 2), id="the search was of batches rolled back"),
        pytest.param(Search("c2", None, 2, NOW, NOW), batches(NOTHING, WAITS), (2, 2), id="no table could be asked"),
        pytest.param(Search("c2", None, 2, 1, NOW + 1), batches(NOTHING, WAITS), None, id="nor a moment ago"),
        pytest.param(Search("c1", None, 1, 1, NOW + 1), batches(WAITS, WAITS), (2, 2), id="a new one is looked for"),
        pytest.param(
            Search("c2", None, 2, NOW + 60, NOW + 90), batches(NOTHING, WAITS), (2, 2), id="a clock went back"
        ),
    ],
)
def test_batches_to_search(last: Search, known: list[LandedBatch], wanted: tuple[int, int] | None) -> None:
    assert last.next(known, NOW) == wanted


def test_revision_waits_where_its_records_are() -> None:
    known = batches(NOTHING, NOTHING, WAITS, first=4)
    known[-1] = replace(known[-1], batch=replace(known[-1].batch, revises=0))
    assert Search("c5").next(known, NOW) == (4, 6)


@pytest.mark.parametrize(
    ("before", "first", "waiting", "after"),
    [(None, 2, [], None), (None, 2, [3, 2], 2), (1, 2, [], 1), (1, 2, [2], 1), (1, 1, [2], 2), (1, 1, [], None)],
)
def test_what_waits_after_a_search(before: int | None, first: int, waiting: list[int], after: int | None) -> None:
    known = batches(WAITS, WAITS, WAITS)
    found = Search("c1", before).after(known, first, NOW, waiting)
    assert (found.newest, found.waiting, found.unasked) == ("c3", after, None)


def test_what_waits_goes_with_its_batch() -> None:
    """It is not known then which other rows wait: once these were searched it is."""
    known = batches(WAITS, WAITS, LEFT, first=5)
    last = Search("c6", 2).after(known, 7, NOW)
    assert last.waiting == 5
    assert last.after(known, 5, NOW).waiting is None


def test_table_that_cannot_be_asked_is_asked_less_and_less_often() -> None:
    known, last, now = batches(WAITS), Search(), NOW
    waits = []
    for _ in range(9):
        last = last.after(known, 1, now, unasked=[1])
        waits.append(last.again - now)
        now = last.again + 5
        assert last.next(known, now) == (1, 1)
    assert waits == [0, 5, 15, 35, 75, 155, 315, 600, 600]
    done = last.after(known, 1, now)
    assert (done.unasked, done.next(known, now)) == (None, None)
    assert done.after(known, 1, now, unasked=[1]).again == now


def test_new_rows_that_are_found_postpone_no_search() -> None:
    last = Search("c2", None, 1, NOW - 60, NOW + 60)
    assert last.after(batches(WAITS, WAITS, WAITS), 3, NOW) == replace(last, newest="c3")


def known(first: int, last: int, **again: int) -> LandedBatches:
    """These batches, of which some revise others: `b7=3` the batch 7 those from 3 on."""
    revises = {int(name.removeprefix("b")): of for name, of in again.items()}
    return LandedBatches([landed(n, revises=revises.get(n)) for n in range(first, last + 1)], complete=first == 1)


@pytest.mark.parametrize(
    ("batches", "least"),
    [
        pytest.param(known(1, 9), 0, id="all is landed"),
        pytest.param(known(4, 9), 3, id="what is not landed any more"),
        pytest.param(known(4, 9, b7=4), 3, id="a revision is landed, too"),
        pytest.param(known(4, 9, b6=3, b7=4), 6, id="one of a batch that is removed, and may be removed, too"),
        pytest.param(known(4, 9, b8=0), 8, id="a replay from Kafka, of which the same is true"),
        pytest.param(known(1, 9, b8=0), 0, id="nothing is removed"),
    ],
)
def test_batch_that_old_rows_have_at_least(batches: LandedBatches, least: int) -> None:
    assert least_batch(batches) == least


def test_table_that_is_to_get_a_revision_is_asked_once_more() -> None:
    """Not where it gets the delete first."""
    assert [last_reading_before(end, known(1, 9, b4=2, b7=4)) for end in (4, 5, 7, 8)] == [0, 4, 4, 7]


REFUSED = ConfigurationError("t was recreated", where="a.b", remedy="fill a new table")
DOWN = Unavailable("it does not answer", where="a.b", remedy="nothing to do")


def table(mode: str, has_coordinates: bool = True, problem: BatchmergeError = REFUSED) -> Any:
    """A table of a pipeline whose topic was recreated: its rows do not show of which of the two topics they are."""
    unique = mode.startswith("upsert")
    of_mode = Mock(mode=mode, has_unique_key=unique, has_coordinates=has_coordinates, kind="iceberg")
    return Mock(table=of_mode, check_replay=Mock(side_effect=problem))


@pytest.mark.parametrize(
    ("tables", "can"),
    [
        pytest.param([table("upsert_delete")], True, id="keys tell rows apart"),
        pytest.param([table("append", has_coordinates=False)], True, id="dead letters are no rows yet"),
        pytest.param([table("upsert_delete"), table("append")], False, id="a log that would refuse them for good"),
        pytest.param([table("delete", problem=DOWN)], False, id="a table that is down holds up no landing"),
    ],
)
def test_rows_stay_dead_letters_where_a_table_could_not_take_them(
    tables: list[Any], can: bool, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = Mock(**{"destinations.return_value": tables, "intermediate.recreated.return_value": {"t": [4]}})
    with caplog.at_level(logging.WARNING, "batchmerge"):
        assert can_be_landed(pipeline) == can
    assert ("rows with a new key stay dead letters" in caplog.text) == (not can)
