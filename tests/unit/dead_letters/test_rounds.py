"""How often dead letters are decoded again: a row may wait for values of a row that the round before has landed."""

from __future__ import annotations

from collections import Counter
from unittest.mock import Mock

import pytest

from jobs.dead_letters import landing_again
from jobs.dead_letters.dead_letter import DeadLetter
from jobs.dead_letters.redecode import Redecoded
from jobs.decode.envelope import MOVED


def round_of(recovered: int, waiting: int, gives_values: bool = False) -> Redecoded:
    """The results of a round."""
    stay: list[DeadLetter] = [Mock(kind=MOVED)] * waiting
    changed = Counter({1: recovered} if recovered else {})
    return Redecoded(Mock(), 9, changed, changed, stay, waiting=Counter({1: waiting}), gives_values=gives_values)


@pytest.mark.parametrize(
    ("kind", "rounds", "made"),
    [
        pytest.param(MOVED, [round_of(2, 0)], 1, id="none waits"),
        pytest.param(MOVED, [round_of(0, 2)], 1, id="nothing was landed for those that wait"),
        pytest.param(MOVED, [round_of(2, 1)], 1, id="none that waits has an old key among those that were landed"),
        pytest.param(MOVED, [round_of(2, 2, gives_values=True), round_of(1, 1)], 2, id="a chain"),
        pytest.param(None, [round_of(2, 1), round_of(0, 1)], 2, id="what was landed may be its delete"),
    ],
)
def test_rounds_end_where_no_row_can_find_more(
    kind: str | None, rounds: list[Redecoded], made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    land = Mock(side_effect=rounds)
    monkeypatch.setattr(landing_again, "_land", land)
    monkeypatch.setattr(landing_again, "most_attempts", Mock(return_value=1))
    monkeypatch.setattr(landing_again, "names_unchanged_columns", Mock(return_value=True))
    found = landing_again.land_again(Mock(), (1, 1), kind)
    assert land.call_count == made
    assert found is not None
    assert found.recovered.total() == sum(one.recovered.total() for one in rounds)
