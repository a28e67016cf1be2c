"""How modules of a checkout become modules below one package."""

from __future__ import annotations

import pytest

from hatch_build import below_package
from tests.kit.flow import ROOT


def test_imports_name_the_package() -> None:
    source = '''
"""Begin with `jobs.batch`."""
import sql
from jobs.batch import Batch
from jobs import protocol; from pathlib import Path
def f():
    """jobs.batch"""
    from resources.errors import (
        ConfigurationError,
    )
    return importlib.import_module(f"{__package__}.jobs")
'''
    assert below_package(source, ROOT) == source.replace("import sql", "from batchmerge import sql").replace(
        "from jobs.batch", "from batchmerge.jobs.batch"
    ).replace("from jobs import", "from batchmerge.jobs import").replace("from res", "from batchmerge.res")


@pytest.mark.parametrize(
    "line",
    [
        "import jobs.batch",
        "import os, sql",
        "PRELOAD = 'orchestration.executor'",
        "run('-c', 'from orchestration.warm.server import main; main()')",
        "where = 'resources.kafka:KafkaCluster'",
    ],
)
def test_what_would_not_be_found_stops_the_build(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 1"):
        below_package(line, ROOT)


@pytest.mark.parametrize("text", ["jobs carry labels", "orchestration/defs", "sql", "resources.nothing_of_ours"])
def test_other_strings_are_left_alone(text: str) -> None:
    assert below_package(f"x = {text!r}", ROOT) == f"x = {text!r}"
