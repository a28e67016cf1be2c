"""What begins with a table's committed state has it brought up to what a dead run has merged."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from jobs.replay.landed import replay_batches
from jobs.verify.reconciliation import Verdict, reconcile
from resources.errors import CommitFailed


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
