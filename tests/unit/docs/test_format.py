"""The decoder of `docs/write-a-format.md` works as the page says."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.kit.guides import DOCS, blocks


def test_the_example_decodes_and_refuses() -> None:
    (block,) = [block for block in blocks(DOCS / "write-a-format.md", "An example") if block.language == "python"]
    defined: dict[str, Any] = {}
    exec(compile(block.text, str(block), "exec"), defined)
    kind = pa.struct([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    records = [b'1,"a, b"', b"2,", None, b",x", b"x,y", b"1,2,3", b"\xff,1"]

    decoded = defined["CommaSeparated"](kind).decode(pa.array(records, pa.binary()))

    values = decoded.values.to_pylist()
    assert values == [{"id": 1, "name": "a, b"}, {"id": 2, "name": None}, None, None, None, None, None]
    assert {n: error.kind for n, error in decoded.errors.items()} == {
        3: "missing",
        4: "type",
        5: "type",
        6: "undecodable",
    }
