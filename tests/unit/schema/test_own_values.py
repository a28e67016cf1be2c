"""Text and bytes of a form as values of a table's own types, and back."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

from jobs.schema.own_values import as_in_table, as_landed
from jobs.schema.types import landed_type, own_type
from tests.kit.arrow import row_type

IDS = [str(uuid.UUID(int=n * 0x0123456789ABCDEF0123456789ABCDEF % 2**128)) for n in range(5)]
TIMES = ["00:00:00", "08:05:00", "23:59:59.999999", "12:00:00.100000", "01:02:03"]
CODES = [b"ab", b"\0\0", b"\xff\xfe", b"a\0", b"zz"]
ROW = row_type({
    "id": "uuid", "at": "time", "code": "fixed(2)", "n": "int", "ids": "array<uuid>", "by": "map<string,time>",
    "in": "struct<a: struct<id: uuid, t: string>>",
})  # fmt: skip


def rows() -> list[dict[str, Any] | None]:
    every = [
        {
            "id": i, "at": t, "code": c, "n": n, "ids": [i, None], "by": [("a", t), ("b", None)],
            "in": {"a": {"id": i, "t": t}},
        }
        for n, (i, t, c) in enumerate(zip(IDS, TIMES, CODES, strict=True))
    ]  # fmt: skip
    empty: dict[str, Any] = {**dict.fromkeys(f.name for f in ROW), "ids": [], "by": []}
    return [every[0], None, *every[1:], {**every[0], "ids": None, "by": None, "in": {"a": None}}, empty]


def plain(kind: pa.DataType) -> pa.DataType:
    """Without marks."""
    return landed_type(own_type(pa.field("", kind)))


@pytest.mark.parametrize("cut", [slice(None), slice(1, None), slice(2, 5), slice(3, 3)])
def test_there_and_back(cut: slice) -> None:
    landed, own = pa.array(rows(), plain(ROW))[cut], own_type(pa.field("", ROW))
    stored = as_in_table(landed, own)
    assert stored.type == own
    stored.validate(full=True)
    assert as_landed(stored).to_pylist() == landed.to_pylist() == rows()[cut]
    ids = pa.StructArray.flatten(stored)[0].cast(pa.binary(16)).to_pylist()
    assert [None if one is None else str(uuid.UUID(bytes=one)) for one in ids] == [
        row["id"] if row else None for row in rows()[cut]
    ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.uuid(), "x" * 36), (pa.uuid(), IDS[1][:-1]), (pa.time64("us"), "noon"), (pa.binary(2), b"abc")],
)
def test_what_has_not_the_form_is_refused(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(pa.ArrowInvalid):
        as_in_table(pa.array([value, None]), kind)


def test_values_of_other_types_are_the_same_array() -> None:
    values = pa.array([{"a": [1]}])
    assert as_in_table(values, values.type) is values
    assert as_landed(values) is values
