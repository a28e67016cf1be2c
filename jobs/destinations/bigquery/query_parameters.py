"""Binds the statement of a flush to its parameters, some of which are looked up in the staged changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.changes.columns import UNCHANGED
from jobs.changes.unchanged_columns import unchanged_parameters
from jobs.destinations.bigquery.columns import OP, Column
from jobs.destinations.bigquery.field import AnyField
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.statements import statement
from jobs.lineage import RecreatedTopics
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.unchanged_columns import row_can_keep
from resources.bigquery import BigQuery

Values = dict[str, str | int | float | None]


def has_unchanged(schema: Sequence[AnyField]) -> bool:
    """Whether an intermediate table has the names of columns that changes leave as they were."""
    return any(field.name == UNCHANGED.name for field in schema)


def says_op(schema: Sequence[AnyField]) -> bool:
    """Whether an intermediate table has the operations of its changes."""
    return any(field.name == OP for field in schema)


@dataclass(frozen=True)
class Binding:
    """Makes the statements that apply staged changes to one destination table.

    The schema of the intermediate table, not the pipeline file, says which optional columns it has: rows that were
    loaded under an earlier file keep their meaning.
    """

    bigquery: BigQuery
    spec: PipelineSpec
    table: BigQueryTable
    columns: Sequence[Column]
    where: str

    def bound(
        self,
        intermediate: str,
        staged: Sequence[AnyField],
        first: int,
        last: int,
        coordinates: tuple[str, ...] = (),
        recreated: RecreatedTopics | None = None,
        truncated_below: int | None = None,
        truncates: bool = False,
    ) -> tuple[str, Values]:
        """The statement's text and parameters, with unchanged columns and key bounds looked up where they help.

        Args:
            staged: the intermediate table's schema.
            coordinates, recreated, truncates: as in `Statement`; the topics by name.
            truncated_below: changes of a smaller order are left out.
        """
        target, source = self.bigquery.table_id(self.table.table), self.bigquery.table_id(intermediate)
        made = statement(self.spec, self.table, self.columns, target, source, self.where)
        recreated = recreated or {}
        later = tuple(tuple(numbers) for numbers in recreated.values())
        wanted = replace(made, coordinates=coordinates, recreated=later, says_op=says_op(staged))
        values = Values(first=first, last=last)
        if truncated_below is not None:
            wanted, values["below"] = replace(wanted, truncated=True, truncates=truncates), truncated_below
        values |= {f"recreated_{n}": topic for n, topic in enumerate(recreated)}
        if row_can_keep(self.spec, self.table) and has_unchanged(staged):
            names = [row["name"] for row in self.bigquery.read(wanted.unchanged_columns_text(), values, self.where)]
            wanted = wanted.keeping(names)
        if wanted.bounds:
            found = self.bigquery.read(wanted.bounds_text(), values, self.where)[0]
            if found["nulls"] or found[wanted.bounds[0].low] is None:
                wanted = wanted.unbounded()
            else:
                values |= {name: found[name] for b in wanted.bounds for name in (b.low, b.high)}
        return wanted.text(), values | unchanged_parameters([c.source[-1] for c in wanted.unchanged])
