"""Whose an intermediate table is."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.landing.intermediate import IntermediateTable
from jobs.spec.pipeline import PipelineSpec
from resources.errors import ConfigurationError
from tests.kit.lake import lake


def test_names_of_two_pipelines_that_make_one(tmp_path: Path) -> None:
    def table(pipeline: str, suffix: str) -> IntermediateTable:
        spec = PipelineSpec.model_validate(
            {
                "source": {"topics": ["t"], "value": {"format": "json", "columns": {"id": "long"}}},
                "intermediate": {"suffix": suffix},
                "tables": [{"kind": "iceberg", "table": "d.t", "mode": "append"}],
            }
        )
        return IntermediateTable(pipeline, spec, lake(tmp_path))

    assert table("a", "b_tmp").prepare() == ["create landing.a_b_tmp"]
    assert table("a", "b_tmp").prepare() == []
    with pytest.raises(ConfigurationError, match="pipeline a lands its batches in this table") as refused:
        table("a_b", "tmp").prepare()
    assert "intermediate.suffix" in refused.value.remedy
