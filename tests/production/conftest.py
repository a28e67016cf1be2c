from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A real instance in a folder of its own."""
    with dg.instance_for_test() as made:
        yield made
