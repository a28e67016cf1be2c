"""What begins with a table's committed state has it brought up to what a dead run has merged."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from jobs.replay.landed import replay_batches
from jobs.verify.reconciliation import reconcile


@pytest.mark.parametrize("work", [lambda p, d: replay_batches(p, d, 1, 1), lambda p, d: reconcile(p, d, 0)])
def test_state_is_settled_before_it_is_read(work: Any) -> None:
    pipeline, destination = Mock(), Mock()
    pipeline.intermediate.recreated.return_value = {}
    destination.leases.return_value = []
    destination.table.max_commit_attempts = 1
    destination.committed.return_value = None
    work(pipeline, destination)
    assert [name for name, *_ in destination.mock_calls if name in ("settle", "committed")] == ["settle", "committed"]
