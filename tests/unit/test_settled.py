"""What begins with a table's committed state has it brought up to what a dead run has merged."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from jobs.replay.landed import replay_batches
from jobs.verify import reconciliation
from jobs.verify.reconciliation import Verdict, reconcile
from resources.errors import CommitFailed
from tests.kit.batches import committed


@pytest.mark.parametrize("work", [lambda p, d: replay_batches(p, d, 1, 1), lambda p, d: reconcile(p, d, 0)])
def test_state_is_settled_before_it_is_read(work: Any) -> None:
    pipeline, destination = Mock(), Mock()
    pipeline.intermediate.recreated.return_value = {}
    destination.leases.return_value = []
    destination.table.max_commit_attempts = 1
    destination.committed.return_value = None
    work(pipeline, destination)
    assert [name for name, *_ in destination.mock_calls if name in ("settle", "committed")] == ["settle", "committed"]


def test_verification_begins_again_where_another_run_moves_the_state() -> None:
    pipeline, destination = Mock(), Mock()
    destination.settle.side_effect = [CommitFailed("another run has moved it"), None]
    destination.committed.return_value = None
    assert reconcile(pipeline, destination, 0) == Verdict(0)
    destination.settle.side_effect = CommitFailed("another run has moved it")
    with pytest.raises(CommitFailed, match="has moved the table on while it was compared"):
        reconcile(pipeline, destination, 0)


@pytest.mark.parametrize(
    ("left_behind", "lacks"),
    [pytest.param(True, False, id="a batch is half done"), pytest.param(False, True, id="one endpoint is behind")],
)
def test_a_table_with_rows_of_later_batches_is_not_compared(
    left_behind: bool, lacks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would explain these rows: the table's state is that of its slowest part."""
    monkeypatch.setattr(reconciliation, "_PAUSE", 0.0)
    pipeline, destination = Mock(), Mock()
    destination.committed.return_value = committed(5)
    destination.parts.return_value = [Mock(), Mock()]
    destination.leases.return_value = [Mock(left_behind=False), Mock(left_behind=left_behind)]
    destination.lacks.side_effect = lambda commit_id: lacks and commit_id == committed(5).commit_id
    with pytest.raises(CommitFailed, match="rows of a batch that is not in all of the table yet"):
        reconcile(pipeline, destination, 0)
    assert not pipeline.mock_calls


def test_a_batch_that_a_run_elsewhere_is_merging_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "_PAUSE", 0.0)
    monkeypatch.setattr(reconciliation, "_Comparison", lambda *_: Mock(run=lambda _: Verdict(5)))
    destination = Mock()
    destination.committed.return_value = committed(5)
    destination.parts.return_value = [Mock()]
    destination.leases.side_effect = [[Mock(left_behind=True)], [Mock(left_behind=False)], [Mock(left_behind=False)]]
    assert reconcile(Mock(), destination, 0) == Verdict(5)
