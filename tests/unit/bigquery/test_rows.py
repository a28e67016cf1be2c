"""Rows of a replay, as Spark is asked for them."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from jobs.changes.columns import POSITIONS
from jobs.destinations.bigquery.rows import RowShape


def test_batch_and_position_are_one_number_in_late_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # columns without a session
    rows = Mock()
    RowShape([], None).replayed(Mock(), Mock(unchanged=(), columns=(), rows=lambda _spark: rows), 7)
    (place,) = [text for text in map(str, rows.select.call_args.args) if "__batch" in text]
    assert f"*(__batch, {POSITIONS}), __i)" in place
    assert 2**30 * POSITIONS < 2**63, "a batch a second for thirty years"
