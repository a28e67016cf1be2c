from __future__ import annotations

from pathlib import Path

import pytest

from resources.iceberg import IcebergCatalog
from tests.kit import lake as kit


@pytest.fixture
def lake(tmp_path: Path) -> IcebergCatalog:
    return kit.lake(tmp_path)
