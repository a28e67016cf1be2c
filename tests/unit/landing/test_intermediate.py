"""Whose an intermediate table is, and how it follows the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.iceberg.append import Append
from jobs.landing.intermediate import IntermediateTable
from resources.errors import ConfigurationError, SchemaRefused
from resources.iceberg import IcebergCatalog
from tests.kit import specs
from tests.kit.batches import batch
from tests.kit.lake import with_metadata


def test_names_of_two_pipelines_that_make_one(lake: IcebergCatalog) -> None:
    def table(pipeline: str, suffix: str) -> IntermediateTable:
        return IntermediateTable(pipeline, specs.spec(intermediate={"suffix": suffix}), lake)

    assert table("a", "b_tmp").prepare() == ["create landing.a_b_tmp"]
    assert table("a", "b_tmp").prepare() == []
    with pytest.raises(ConfigurationError, match="pipeline a lands its batches in this table") as refused:
        table("a_b", "tmp").prepare()
    assert "intermediate.suffix" in refused.value.remedy


def test_an_existing_table_gets_the_properties_that_it_lacks(lake: IcebergCatalog) -> None:
    """Compaction's row groups have to be small: readers hold a whole one."""
    table = IntermediateTable("a", specs.spec(), lake)
    table.prepare()
    name, small = "write.parquet.row-group-size-bytes", str(8 << 20)
    assert lake.require(table.identifier).properties[name] == small
    with lake.require(table.identifier).transaction() as change:
        change.remove_properties(name)
        change.set_properties({"write.parquet.compression-codec": "snappy"})
    assert table.prepare() == []
    found = lake.require(table.identifier)
    assert found.properties[name] == small
    assert found.properties["write.parquet.compression-codec"] == "snappy", "as somebody has set it"
    table.prepare()
    assert lake.require(table.identifier).metadata_location == found.metadata_location


@pytest.mark.parametrize("ignore_case", [False, True])
def test_landed_column_in_another_spelling_is_refused_with_what_helps(lake: IcebergCatalog, ignore_case: bool) -> None:
    """Landed rows keep the names that they have: `ignore_case` is about records and destination tables."""
    IntermediateTable("p", specs.spec(columns={"id": "long"}), lake).prepare()
    respelled = IntermediateTable("p", specs.spec(columns={"Id": "long"}, ignore_case=ignore_case), lake)
    with pytest.raises(
        SchemaRefused, match=r"value\.Id differs from id in the table .* \(declare it as id\)"
    ) as refused:
        respelled.prepare()
    assert "ignore_case" not in str(refused.value)


def test_a_table_whose_format_version_somebody_has_raised(lake: IcebergCatalog, tmp_path: Path) -> None:
    """What is landed can still be merged, and nothing can be landed."""
    IntermediateTable("p", specs.spec(columns={"id": "long"}), lake).prepare()
    raised = with_metadata(tmp_path, "landing.p_tmp", {"format-version": 3, "next-row-id": 0})
    table = IntermediateTable("p", specs.spec(columns={"id": "long"}), raised)
    assert table.prepare() == []
    with pytest.raises(ConfigurationError, match="format version is 3") as refused:
        table.read(None, None, batch(1), None, None)  # type: ignore[arg-type]
    assert "offsets reset p --to committed" in refused.value.remedy
    for change in (
        lambda: IntermediateTable("p", specs.spec(columns={"new": "long"}), raised).prepare(),
        lambda: Append(raised, table.identifier, "p", None),
        lambda: table.keep(raised.require(table.identifier), {"a": "b"}),
    ):
        with pytest.raises(ConfigurationError, match="format version is 3"):
            change()
