"""Whose an intermediate table is."""

from __future__ import annotations

import pytest

from jobs.landing.intermediate import IntermediateTable
from resources.errors import ConfigurationError
from resources.iceberg import IcebergCatalog
from tests.kit import specs


def test_names_of_two_pipelines_that_make_one(lake: IcebergCatalog) -> None:
    def table(pipeline: str, suffix: str) -> IntermediateTable:
        return IntermediateTable(pipeline, specs.spec(intermediate={"suffix": suffix}), lake)

    assert table("a", "b_tmp").prepare() == ["create landing.a_b_tmp"]
    assert table("a", "b_tmp").prepare() == []
    with pytest.raises(ConfigurationError, match="pipeline a lands its batches in this table") as refused:
        table("a_b", "tmp").prepare()
    assert "intermediate.suffix" in refused.value.remedy
