"""When a continuous step of many tables is done with one of them. Without services."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from jobs import protocol
from jobs.batch import CommittedState, MergeCounts
from jobs.destinations.base import lack
from jobs.destinations.merge_context import Merged
from jobs.members.members import Members
from jobs.merged import MergedBatches
from jobs.spec.members import expand
from jobs.spec.pipeline import PipelineSpec
from orchestration.continuous.members import MergingOfMembers
from resources.connections import Connections
from tests.kit.batches import committed, landed
from tests.kit.many_topics import document, topics

SPEC = PipelineSpec.model_validate(document("many", ("bigquery",), interval="5s"))


class Step:
    """The step of the table."""

    launch, table, key = SimpleNamespace(spec=SPEC, name="many"), SPEC.tables[0], dg.AssetKey(["bigquery", "many"])
    turn = staticmethod(nullcontext)
    require_passed = staticmethod(lambda _: None)

    def __init__(self) -> None:
        self.context = SimpleNamespace(instance=dg.DagsterInstance.ephemeral())

    def members(self) -> Members:
        return Members("many", SPEC, Connections({}, "no file"))


def test_a_table_that_merges_later_is_tried_until_it_has_all_that_is_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As BigQuery does by `merge_interval_seconds`; the second batch was landed a while after the first."""
    answers, tries, states = [None, None, 1, None, None, 2, None], list[int | None](), list[CommittedState]()

    def merge(*_: object) -> MergedBatches | None:
        tries.append(number := answers[len(tries)])
        if number is None:
            return None
        states.append(committed(number))
        return MergedBatches([landed(number)], None, Merged(MergeCounts(), "job"))

    def opened(_: object, member: Any, *__: object, **___: object) -> Any:
        lacks = lambda commit_id: lack(states[-1:] or [None], commit_id)  # noqa: E731
        destination = SimpleNamespace(name="d", table=SPEC.tables[0], lacks=lacks)
        return SimpleNamespace(
            name=member.name,
            spec=member.spec,
            only=None,
            intermediate=SimpleNamespace(identifier="many", committed=lambda: committed(2)),
            table=lambda _: SPEC.tables[0],
            destination_of=lambda _: destination,
            in_time=lambda _, __, work: work(),
        )

    monkeypatch.setattr(Members, "known", lambda _: expand("many", SPEC, topics(1)).members)
    monkeypatch.setattr(Members, "_events", lambda *_: SimpleNamespace(published=nullcontext))
    monkeypatch.setattr(Members, "open", opened)
    monkeypatch.setattr(protocol, "merge", merge)
    step: Any = Step()
    work = MergingOfMembers(step)
    for _ in range(10):
        work.tick()
    assert tries == [None, None, 1, None, None, 2]
