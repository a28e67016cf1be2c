"""pytest's captured log stays as it is after Spark refused a query (`tests/conftest.py` says why it might not)."""

from __future__ import annotations

import logging

import pytest
from _pytest.logging import catching_logs
from pyspark.logger import PySparkLogger


def test_a_refused_query_leaves_the_captured_log_as_it_was(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(PySparkLogger.getLogger("SQLQueryContextLogger"), "propagate", False)
    with catching_logs(caplog.handler):
        logging.getLogger("batchmerge").warning('a "quoted" line')
    assert 'a "quoted" line' in caplog.text
