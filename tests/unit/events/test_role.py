"""What a role knows of the groups that it moves, so that it does not ask Kafka again. Without services."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from unittest.mock import Mock

import pytest

from jobs.batch import CommittedState
from jobs.events import role as role_module
from jobs.events.messages import CommitComplete
from jobs.events.pending import Due, PublishedThrough
from jobs.events.role import Role
from jobs.spec.control import Control
from tests.kit.batches import committed


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    groups: list[str] = []

    def metadata(_: object, group: str, *__: object) -> dict[object, str]:
        groups.append(group)
        return {}

    monkeypatch.setattr(role_module, "group_metadata", metadata)
    return groups


@dataclass(frozen=True)
class Noted(Due):
    """Due events that note from what they are decided."""

    seen: list[PublishedThrough | None] = field(default_factory=list)

    def states(self, published: PublishedThrough | None) -> list[CommittedState]:
        self.seen.append(published)
        return [self.state]


def due(number: int, seen: list[PublishedThrough | None], alone: bool) -> Iterable[Due]:
    state = committed(number)
    payload = CommitComplete(state.commit_id, number)
    yield Noted("complete", "batchmerge-p", state, [], lambda _: [payload], alone=alone, seen=seen)


@pytest.mark.parametrize("alone", [True, False])
def test_a_group_that_nobody_else_moves_is_read_once(asked: list[str], alone: bool) -> None:
    role = Role("p", Control(), Mock(), "run", "batchmerge-p/lake.n.t")
    role._writer = Mock(is_open=True)
    seen: list[PublishedThrough | None] = []
    for number in (1, 2, 3):
        role.publish_due(due(number, seen, alone))
    assert asked == ["batchmerge-p"] * (1 if alone else 3)
    assert [one.batch_number if one else None for one in seen] == ([None, 1, 2] if alone else [None] * 3)
