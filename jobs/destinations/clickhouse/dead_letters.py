"""Dead letters of a ClickHouse table: landed rows that it cannot take, in a table beside it (`<table>__dead_letters`).

One row a letter: topic, partition, offset, batch, column, its declared and its wanted type, the reason, the
operation, and the row as JSON text. Reasons never hold values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from jobs.destinations.clickhouse.columns import Column
from jobs.schema.types import type_name
from resources.errors import BadRecords

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("batch", pa.int64()),
        *(pa.field(name, pa.string()) for name in ("column", "declared", "wanted", "reason", "op", "row")),
    ]
)
_LEADING = {"topic": "__topic", "partition": "__partition", "offset": "__offset", "batch": "__batch"}


@dataclass(frozen=True)
class DeadLetters:
    """How dead letters are made and where they go.

    Attributes:
        sql: the insert into the table beside.
        stop: the pipeline's policy is to fail at the first one.
        where: the table, for errors.
    """

    sql: str
    stop: bool
    where: str

    def none(self) -> pa.Table:
        return SCHEMA.empty_table()

    def of(self, rows: pa.Table, column: Column, reason: str) -> pa.Table:
        """Letters of rows whose value of this column does not fit.

        Raises:
            BadRecords: under the policy `fail`.
        """
        types = {"column": column.name, "declared": type_name(column.arrow), "wanted": column.type}
        if self.stop:
            first = {name: rows[_LEADING[name]][0].as_py() for name in ("topic", "partition", "offset")}
            raise BadRecords(
                f"column {column.name}: {reason} ({types['declared']} to {column.type}), first at offset "
                f"{first['offset']} of {first['topic']}-{first['partition']}",
                where=self.where,
                remedy="give the column a type that holds it, or allow dead letters with `on_bad_record: quarantine`",
            )
        return self._letters(rows, {**types, "reason": reason})

    def of_all(self, rows: pa.Table, reason: str) -> pa.Table:
        return self._letters(rows, {"column": "", "declared": "", "wanted": "", "reason": reason})

    def _letters(self, rows: pa.Table, said: dict[str, str]) -> pa.Table:
        own = [name for name in rows.column_names if not name.startswith("__")]
        letters = [
            {
                **{name: row[leading] for name, leading in _LEADING.items()},
                **said,
                "op": "delete" if row.get("__deleted") else "upsert",
                "row": json.dumps({name: row[name] for name in own}, default=_text),
            }
            for row in rows.to_pylist()
        ]
        return pa.Table.from_pylist(letters, schema=SCHEMA)


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
