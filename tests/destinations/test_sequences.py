"""Any sequence of what can happen to a pipeline ends in the model's tables, or in an error that names the choices.

Thousands of sequences are played without tables in `tests/unit/test_any_sequence.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resources.errors import BatchmergeError
from tests.destinations.conftest import MakeStory, every_kind, most_kinds
from tests.kit.examples import SEED, few
from tests.kit.kind import KindUnderTest
from tests.kit.kinds import KINDS
from tests.kit.played import NARROW, PARTITIONS, Played

STEPS: dict[str, Callable[[Played], None]] = {
    "advance": Played.advance,
    "replay landed": Played.replay_landed,
    "replay from Kafka": Played.replay_from_kafka,
    "replay by another file": Played.replay_by_another_file,
    "retry": Played.retry,
    "retry by another file": Played.retry_by_another_file,
    "back to the beginning": Played.back_to_the_beginning,
    "skip to the end": Played.skip_to_the_end,
    "retention": Played.retention,
    "compaction": Played.compaction,
    "recreated topic": Played.recreated_topic,
}
WHERE_IT_ROLLS_BACK = {"roll back": Played.roll_back}


def steps_of(kind: KindUnderTest) -> dict[str, Callable[[Played], None]]:
    return {**STEPS, **(WHERE_IT_ROLLS_BACK if kind.capabilities.rolls_back else {})}


# The older of two changes may come later.
ORDERED = {"key": {"columns": ["id"]}, "op": {"field": "op"}, "order_by": "version"}


def play(
    steps: list[str], seed: int, kind: KindUnderTest, modes: Sequence[str], new_story: MakeStory, **parts: object
) -> None:
    story = new_story(partitions=PARTITIONS, columns=NARROW, **parts)
    played, known = Played.of(story, kind, modes, seed), steps_of(kind)
    for step in ("advance", "advance", *steps, "advance"):
        problem = done(known[step], played)
        if problem:
            assert problem.remedy, (steps, step, problem)
        if problem and step != "retry" and not step.startswith("replay"):
            # A person has to choose; until then nothing is wrong.
            played.check_is_behind(steps)
            return
    played.check(steps)


def done(step: Callable[[Played], None], played: Played) -> BatchmergeError | None:
    """What refused it, if something did."""
    try:
        step(played)
    except BatchmergeError as problem:
        return problem
    return None


# What has been wrong once, and the usual dangers in a row; drawn ones come on top.
FIXED = [
    *("recreated topic", "retry by another file", "replay by another file", "replay landed"),
    *("back to the beginning", "compaction"),
    *("replay from Kafka", "retention"),
]
# Drawn differently in each session, on top.
DRAWN = 2


@most_kinds
def test_a_sequence_ends_in_the_model(kind: KindUnderTest, new_story: MakeStory) -> None:
    drawn = random.Random(SEED).choices(sorted(steps_of(kind)), k=DRAWN)
    steps = [*FIXED, *(WHERE_IT_ROLLS_BACK if kind.capabilities.rolls_back else ()), *drawn]
    play(steps, SEED, kind, [mode for mode in kind.modes if mode != "upsert"], new_story)


@pytest.mark.parametrize("kind", [KINDS["iceberg"]], ids=["iceberg"])
def test_a_sequence_of_changes_with_an_order_ends_in_the_model(kind: KindUnderTest, new_story: MakeStory) -> None:
    """How the changes of a key are reduced is the same for all kinds."""
    drawn = random.Random(SEED).choices(sorted(steps_of(kind)), k=DRAWN)
    play([*FIXED, *drawn], SEED, kind, ["upsert", "upsert_delete"], new_story, changes=ORDERED)


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize("ordered", [False, True])
@few(6)
@given(data=st.data(), seed=st.integers(0, 99))
def test_any_sequence_ends_in_the_model(
    kind: KindUnderTest, ordered: bool, new_story: MakeStory, data: st.DataObject, seed: int
) -> None:
    steps = data.draw(st.lists(st.sampled_from(sorted(steps_of(kind))), min_size=4, max_size=8))
    modes = [mode for mode in kind.modes if not ordered or mode.startswith("upsert")]
    play(steps, seed, kind, modes, new_story, **({"changes": ORDERED} if ordered else {}))
