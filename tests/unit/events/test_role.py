"""What a role knows of the groups that it moves, so that it does not ask Kafka again. Without services."""

from __future__ import annotations

from dataclasses import dataclass, field
from unittest.mock import Mock

import pytest

from jobs.batch import CommittedState
from jobs.events import role as role_module
from jobs.events.messages import CommitComplete
from jobs.events.pending import Due, PublishedThrough
from jobs.events.role import Role, Unpublished
from jobs.spec.control import Control
from resources.errors import Interrupted
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


def due(number: int, seen: list[PublishedThrough | None], alone: bool) -> Unpublished:
    state = committed(number)
    payload = CommitComplete(state.commit_id, number)
    noted = Noted("complete", "batchmerge-p", state, [], lambda _: [payload], alone=alone, seen=seen)
    return Unpublished("p", "complete", due=noted)


@pytest.mark.parametrize("alone", [True, False])
def test_a_group_that_nobody_else_moves_is_read_once(asked: list[str], alone: bool) -> None:
    role = Role(Control(), Mock(), "run", "batchmerge-p/lake.n.t")
    role._writer = Mock(is_open=True)
    seen: list[PublishedThrough | None] = []
    for number in (1, 2, 3):
        role.send([due(number, seen, alone)])
    assert asked == ["batchmerge-p"] * (1 if alone else 3)
    assert [one.batch_number if one else None for one in seen] == ([None, 1, 2] if alone else [None] * 3)


class Fenced:
    """A writer of a role that a newer run has taken."""

    is_open = True

    def send_messages(self, *_: object) -> None:
        raise Interrupted("a newer run has this role", where="batchmerge-p")


def test_only_a_role_of_earlier_work_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Unpublished("p", "request", [CommitComplete("c", 1)])
    monkeypatch.setattr(role_module, "ControlWriter", Mock(return_value=Mock(is_open=True)))
    role = Role(Control(), Mock(), "run", "batchmerge-p/landing")
    role.begin()
    role._writer = Fenced()  # type: ignore[assignment]
    with pytest.raises(Interrupted):  # the other run began later than this work
        role.send([request])
    role._renew()
    role.send([request])
    role._writer = Fenced()  # type: ignore[assignment]
    with pytest.raises(Interrupted):
        role.send([request])
    role.begin()
    role.send([request])  # the other run took the role before this work began
    role._writer = Fenced()  # type: ignore[assignment]
    with pytest.raises(Interrupted):
        role.send([request])


def test_a_role_is_taken_back_though_nothing_was_due_first(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The table's own events were published with an earlier batch, when the other tables were behind."""
    monkeypatch.setattr(role_module, "ControlWriter", Mock(return_value=Mock(is_open=True)))
    role = Role(Control(), Mock(), "run", "batchmerge-p/lake.n.t")
    role.send([due(1, [], alone=True)])
    role.begin()
    role._writer = Fenced()  # type: ignore[assignment]
    state = committed(1)
    role.send([Unpublished("p", "table", due=Due("table", "batchmerge-p", state, [], lambda _: []))])
    role.send([due(2, [], alone=True)])
    assert not isinstance(role._writer, Fenced)
    assert asked == ["batchmerge-p"] * 2, "the other run may have moved the group"
