"""The demo's comparison: blind to the order of rows and to how a system calls its types, and to nothing else."""

from __future__ import annotations

import pyarrow as pa
import pytest

from orchestration.cli.demo_tables import is_same
from resources.local.flights.expected import expected_table


@pytest.fixture(scope="module")
def expected() -> pa.Table:
    return expected_table(1).slice(0, 50)


def test_another_order_of_rows_and_columns_and_wider_types_are_the_same(expected: pa.Table) -> None:
    found = expected.sort_by([("tailnum", "descending")]).select(expected.column_names[::-1])
    found = found.append_column("_version", pa.array([1] * len(found)))
    assert is_same(found.set_column(0, "air_time", found["air_time"].cast(pa.int64())), expected)


def test_one_wrong_value_a_missing_row_and_a_row_twice_differ(expected: pa.Table) -> None:
    delays = expected["dep_delay"].to_pylist()
    position = expected.schema.get_field_index("dep_delay")
    wrong = expected.set_column(position, "dep_delay", pa.array([delays[0] + 1, *delays[1:]], pa.int32()))
    assert not is_same(wrong, expected)
    assert not is_same(expected.slice(1), expected)
    assert not is_same(pa.concat_tables([expected, expected.slice(0, 1)]), expected)
