"""How a table's files are put in order when they are compacted, on a real SQLite catalog."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.iceberg.schema import iceberg_schema, sort_order
from jobs.maintenance.compaction import order_of_files
from jobs.maintenance.maintained_table import MaintainedTable
from jobs.spec.maintenance import Compaction
from resources.errors import ConfigurationError
from resources.iceberg import IcebergCatalog

SCHEMA = iceberg_schema(pa.schema([("id", pa.int64()), ("at", pa.date32())]))


@pytest.mark.parametrize(
    ("own", "usual", "options", "expected"),
    [
        ([], (), {}, ("binpack", ())),
        ([], ("id",), {}, ("sort", ("id",))),
        ([], ("id",), {"sort_by": ["at"]}, ("sort", ("at",))),
        (["id"], (), {}, ("sort", ())),
        (["id"], (), {"sort_by": ["id"]}, ("sort", ())),
        (["id"], ("id",), {"strategy": "bin_pack"}, ("binpack", ())),
        (["id"], (), {"sort_by": ["at"]}, "another order than the table's own"),
        ([], (), {"strategy": "sort"}, "no order to sort by"),
    ],
)
def test_strategy_and_order(
    lake: IcebergCatalog,
    own: list[str],
    usual: tuple[str, ...],
    options: dict[str, object],
    expected: tuple[str, tuple[str, ...]] | str,
) -> None:
    table = lake.create("n.t", SCHEMA, sort=sort_order(SCHEMA, own))
    kept = MaintainedTable("p", lake, "n.t", "main", True, usual, 60)
    if isinstance(expected, str):
        with pytest.raises(ConfigurationError, match=expected):
            order_of_files(kept, Compaction.model_validate(options), table)
    else:
        assert order_of_files(kept, Compaction.model_validate(options), table) == expected
