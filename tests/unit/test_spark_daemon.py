"""What Spark's Python workers have loaded when they are forked."""

from __future__ import annotations

from importlib import import_module

import pytest

from jobs.spark_daemon import LOADED


@pytest.mark.parametrize("module", LOADED)
def test_each_module_is_there(module: str) -> None:
    """The daemon itself goes on without one that is not, and each worker would take two seconds more."""
    assert import_module(module, "jobs").__doc__
