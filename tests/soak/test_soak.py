"""A few kills, of what the dice say; `make soak` kills 300 times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.__main__ import soak
from tests.soak.soak import THREE

pytestmark = pytest.mark.crash


def test_every_table_is_right_after_kills_of_everything(stack: Path, tmp_path: Path) -> None:
    assert soak(kills=2, seed=1, home=stack, folder=tmp_path, tables=THREE)
