"""Rows that a table's system cannot hold: found before they are sent, adjusted if the file says so, else refused.

One policy for every kind: a refused row is left out, in every mode, before changes are reduced to one per key. So the
result does not depend on how the log was cut. The row becomes a dead letter in the table's side table (`on_bad_record:
quarantine`), is only counted (`skip`), or stops the merge (`fail`, and the limits of `dead_letters`).

A kind says what its columns can hold (`LimitedColumn`), sends the rows that `Refusal.fit` returns, and keeps the dead
letters in the table `<table>__dead_letters`, one row each, marked with the attempt that wrote it. An attempt that
checks records again (a retry, a replay) at its end deletes the dead letters of these records by other attempts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from jobs.destinations.limits import (
    NULL_COLLECTION,
    NULL_ELEMENT,
    Limits,
    Mask,
    brought_in_range,
    inner_fields,
    null_collections,
    out_of_range,
    refuses_nulls,
)
from jobs.schema.python_values import python_values
from jobs.schema.types import type_name
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import OutOfRange
from resources.errors import BadRecords

# Columns of the rows to check, besides the table's own.
TOPIC, PARTITION, OFFSET, BATCH, SENT_DELETED = "__bm_topic", "__bm_partition", "__bm_offset", "__batch", "__deleted"
# The paths of the first four in a landed row (`LandedSlice.at`).
LANDED_AT: Mapping[str, tuple[str, ...]] = {
    TOPIC: ("kafka", "topic"),
    PARTITION: ("kafka", "partition"),
    OFFSET: ("kafka", "offset"),
    BATCH: ("batchNumber",),
}

# Columns of the side table. `key` and `row` are JSON text, `attempt` is the attempt that wrote the dead letter.
DEAD_LETTER_ROW = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("batch", pa.int64()),
        *(
            pa.field(name, pa.string())
            for name in ("column", "declared", "wanted", "reason", "op", "key", "row", "attempt")
        ),
    ]
)
_PLACE = {"topic": TOPIC, "partition": PARTITION, "offset": OFFSET, "batch": BATCH}


@dataclass(frozen=True)
class LimitedColumn:
    """A column of the rows, and which of its values the table's column can hold.

    Attributes:
        name: in the rows. label: in the table, for people.
        type: of the table's column, in the words of its system.
        fixed: the column must not be adjusted, because it is part of the key or orders changes.
    """

    name: str
    label: str
    declared: pa.DataType
    type: str
    nullable: bool
    is_key: bool
    limits: Limits
    fixed: bool = False

    @property
    def may_refuse(self) -> bool:
        """Whether the declared type has values that the column cannot hold, as far as the pipeline file shows."""
        return bool(self.limits.checks) or _has_limits(self.declared, self.limits, of_nulls=True)

    @property
    def may_be_adjusted(self) -> bool:
        """Whether values outside its range may be clamped or set to null, if the file says so."""
        return not self.is_key and not self.fixed and _has_limits(self.declared, self.limits, of_nulls=False)


@dataclass(frozen=True)
class Fit:
    """The result of checking rows.

    Attributes:
        rows: those that the table can hold, in their order.
        dead_letters: one for each of the others.
        adjusted: which of `rows` have a value that was clamped or set to null.
    """

    rows: pa.Table
    dead_letters: pa.Table
    adjusted: Mask

    @property
    def out_of_range(self) -> int:
        return int(self.adjusted.sum())


@dataclass(frozen=True)
class Refusal:
    """Checks rows of one table; travels to the workers.

    Attributes:
        where: the table, for errors.
        on_bad_record: of the pipeline.
        attempt: the attempt that writes the dead letters.
        topic_ids: by topic.
    """

    where: str
    columns: tuple[LimitedColumn, ...]
    on_bad_record: Literal["quarantine", "fail", "skip"]
    out_of_range: OutOfRange
    attempt: str
    topic_ids: Mapping[str, str]

    @property
    def keeps_dead_letters(self) -> bool:
        return self.on_bad_record == "quarantine"

    def fit(self, rows: pa.Table) -> Fit:
        """Checks rows with all columns, `TOPIC, PARTITION, OFFSET, BATCH`, and `SENT_DELETED` if they may be deletes.

        Raises:
            BadRecords: a row is refused, and the policy is `fail`.
        """
        dead_letters, changed = DEAD_LETTER_ROW.empty_table(), np.zeros(rows.num_rows, dtype=bool)
        for column in self.columns:
            if not column.may_refuse:
                continue
            rows, adjusted = self._adjusted_values(rows, column)
            changed |= adjusted
            for reason, flawed in self._flaws(rows, column):
                kept, more = self.parted(rows, flawed, column, reason)
                changed = changed if kept.num_rows == rows.num_rows else changed[~flawed]
                rows, dead_letters = kept, pa.concat_tables([dead_letters, more])
        return Fit(rows, dead_letters, changed)

    def parted(self, rows: pa.Table, flawed: Mask, column: LimitedColumn, reason: str) -> tuple[pa.Table, pa.Table]:
        """Separates the rows that are flawed in this column: returns the other rows, and dead letters of the flawed.

        Raises:
            BadRecords: some are flawed, and the policy is `fail`.
        """
        if not flawed.any():
            return rows, DEAD_LETTER_ROW.empty_table()
        bad, said = rows.filter(pa.array(flawed)), f"{type_name(column.declared)} to {column.type}"
        if self.on_bad_record == "fail":
            topic, partition, offset = (bad[name][0].as_py() for name in (TOPIC, PARTITION, OFFSET))
            raise BadRecords(
                f"column {column.label}: {reason} ({said}), first at offset {offset} of {topic}-{partition}",
                where=self.where,
                remedy="give the column a type that can hold the value, or allow dead letters with `on_bad_record: "
                "quarantine`",
            )
        return rows.filter(pa.array(~flawed)), self._dead_letters(bad, column, reason)

    def _adjusted_values(self, rows: pa.Table, column: LimitedColumn) -> tuple[pa.Table, Mask]:
        """The rows with values of this column brought into its range, and a mask of the rows that this changed."""
        unchanged = np.zeros(rows.num_rows, dtype=bool)
        if self.out_of_range == "refuse" or not column.may_be_adjusted:
            return rows, unchanged
        before = judged(rows, column, out_of_range(rows[column.name].combine_chunks(), column.limits))
        if not before.any():
            return rows, unchanged
        fitted = brought_in_range(rows[column.name].combine_chunks(), column.limits, self.out_of_range, column.nullable)
        after = judged(rows, column, out_of_range(fitted, column.limits))
        at = rows.column_names.index(column.name)
        return rows.set_column(at, rows.schema.field(column.name), fitted), before & ~after

    def _flaws(self, rows: pa.Table, column: LimitedColumn) -> Iterator[tuple[str, Mask]]:
        values = rows[column.name].combine_chunks()
        beyond = judged(rows, column, out_of_range(values, column.limits))
        nulls = judged(rows, column, null_collections(values, column.limits)) & ~beyond
        yield column.limits.outside, beyond
        yield NULL_ELEMENT if column.limits.collections else NULL_COLLECTION, nulls[~beyond]
        left = ~(beyond | nulls)
        for problem, judge in column.limits.checks:
            flawed = judged(rows, column, judge(values)) & left
            yield problem, flawed[left]
            left &= ~flawed

    def _dead_letters(self, rows: pa.Table, column: LimitedColumn, reason: str) -> pa.Table:
        own = [c for c in self.columns if c.name in rows.column_names]
        values = {c.label: python_values(rows[c.name]) for c in own}
        keys = [c.label for c in own if c.is_key]
        places = rows.select(list(_PLACE.values())).to_pylist()
        deleted = rows[SENT_DELETED].to_pylist() if SENT_DELETED in rows.column_names else [0] * rows.num_rows
        dead_letters = []
        for number, place in enumerate(places):
            row = {name: array[number] for name, array in values.items()}
            dead_letters.append(
                {
                    **{name: place[given] for name, given in _PLACE.items()},
                    "topic_id": self.topic_ids.get(place[TOPIC], ""),
                    "column": column.label,
                    "declared": type_name(column.declared),
                    "wanted": column.type,
                    "reason": reason,
                    "op": "delete" if deleted[number] else "upsert",
                    "key": json.dumps({name: row[name] for name in keys}, default=_text) if keys else "",
                    "row": json.dumps(row, default=_text),
                    "attempt": self.attempt,
                }
            )
        return pa.Table.from_pylist(dead_letters, schema=DEAD_LETTER_ROW)


def certain(columns: Sequence[LimitedColumn]) -> Iterator[str]:
    """Columns whose declared type allows nulls that the table refuses, as sentences for `check` and `plan`."""
    for column in columns:
        if refuses_nulls(column.declared, column.limits, column.nullable):
            what = "elements of" if column.limits.collections else "values of, or in,"
            said = f"{what} column {column.label} ({type_name(column.declared)}) may be null"
            yield f"{said}: rows with such a null are certain to be refused. Fix: {column.limits.remedy}"


def check_limits(spec: PipelineSpec, where: str, refused: int, changes: int, batches: int) -> None:
    """Stops a merge before it is committed, if it refuses more rows than `dead_letters` allows.

    Raises:
        BadRecords: a retry gives the same result, until the file is corrected.
    """
    limit = spec.dead_letters.refused(refused, changes, batches)
    if refused and limit:
        raise BadRecords(
            f"{refused} of {changes} rows cannot be stored, {limit}",
            where=where,
            remedy="correct the table's options, or raise the limits in `dead_letters`",
            refused=refused,
        )


def judged(rows: pa.Table, column: LimitedColumn, mask: Mask | None) -> Mask:
    """Which rows are flawed in this column. Deletes are checked in key columns only, since they have no others."""
    if mask is None:
        return np.zeros(rows.num_rows, dtype=bool)
    if column.is_key or SENT_DELETED not in rows.column_names:
        return mask
    kept: Mask = mask & (rows[SENT_DELETED].to_numpy() == 0)
    return kept


def _has_limits(kind: pa.DataType, limits: Limits, of_nulls: bool) -> bool:
    """Whether values of the type may be out of a range, or (`of_nulls`) null where the column holds no null."""
    if not pa.types.is_nested(kind):
        return limits.range_of(kind) is not None
    if of_nulls and (not limits.collections or (not limits.elements and pa.types.is_list(kind))):
        return True
    return any(_has_limits(field.type, limits, of_nulls) for field in inner_fields(kind))


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
