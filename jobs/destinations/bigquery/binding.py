"""The statement of a flush with its parameters; some of both only the staged changes can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobs.destinations.bigquery.columns import Column
from jobs.destinations.bigquery.statement import order_column, statement
from jobs.landing.columns import KEPT
from jobs.landing.kept import kept_parameters
from jobs.spec.keeping import can_keep, kept_columns
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.tables import BigQueryTable
from resources.bigquery import BigQuery

Values = dict[str, str | int | float | None]


@dataclass(frozen=True)
class Binding:
    """Makes the statements that apply staged changes to one destination table."""

    bigquery: BigQuery
    spec: PipelineSpec
    table: BigQueryTable
    columns: Sequence[Column]
    where: str

    def keeps(self, intermediate: str) -> bool:
        """Whether changes in this intermediate table may leave columns as they were; once so, it stays so."""
        if not can_keep(self.table) or not kept_columns(self.spec) or order_column(self.spec, self.columns):
            return False
        found = self.bigquery.find_table(intermediate)
        return found is not None and any(field.name == KEPT.name for field in found.schema)

    def bound(self, intermediate: str, first: int, last: int, coordinates: tuple[str, ...] = ()) -> tuple[str, Values]:
        """The statement's text and parameters, with kept columns and bounds of keys looked up where they are of use."""
        target, source = self.bigquery.table_id(self.table.table), self.bigquery.table_id(intermediate)
        made = statement(self.spec, self.table, self.columns, target, source, self.where)
        wanted, values = replace(made, coordinates=coordinates), Values(first=first, last=last)
        if self.keeps(intermediate):
            names = [row["name"] for row in self.bigquery.read(wanted.kept_text(), values, self.where)]
            wanted = wanted.keeping(names)
        if wanted.bounds:
            found = self.bigquery.read(wanted.bounds_text(), values, self.where)[0]
            if found["nulls"] or found[wanted.bounds[0].low] is None:
                wanted = wanted.unbounded()
            else:
                values |= {name: found[name] for b in wanted.bounds for name in (b.low, b.high)}
        return wanted.text(), values | kept_parameters([c.source[-1] for c in wanted.kept])
