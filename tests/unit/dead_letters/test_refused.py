"""Rows that tables refused, tried again table by table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from jobs.dead_letters.refused import retry_refused
from jobs.pipeline import Pipeline
from resources.errors import SchemaRefused, Unavailable


def table(name: str, **problems: Exception) -> Any:
    """A table that refused rows of batch 1 and takes them now, unless something fails."""
    found = Mock(**{"committed.return_value": None, "refused.side_effect": [{1: 2}, {}]})
    found.name = name
    for method, problem in problems.items():
        getattr(found, method).side_effect = problem
    return found


@pytest.mark.parametrize("problem", [{"refused": Unavailable("down")}, {"prepare": SchemaRefused("no")}], ids=str)
def test_a_table_that_fails_does_not_stop_the_others(
    problem: dict[str, Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.dead_letters.refused.replay_batches", lambda *_: None)
    tables = [table("bigquery d.t", **problem), table("clickhouse d.t")]
    done = retry_refused(cast(Pipeline, SimpleNamespace(destinations=lambda: tables)))
    assert [(name, rows.tried, rows.stay, rows.problem) for name, rows in done.items()] == [
        ("bigquery d.t", 0, 0, *problem.values()),
        ("clickhouse d.t", 2, 0, None),
    ]


def test_replays_of_a_table_that_fails_at_the_end_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed, problem = Mock(), Unavailable("down")
    monkeypatch.setattr("jobs.dead_letters.refused.replay_batches", lambda *_: replayed)
    failing = table("bigquery d.t")
    failing.refused.side_effect = [{1: 2}, problem]
    (done,) = retry_refused(cast(Pipeline, SimpleNamespace(destinations=lambda: [failing]))).values()
    assert (done.tried, done.recovered, done.replayed, done.problem) == (2, None, [replayed], problem)
