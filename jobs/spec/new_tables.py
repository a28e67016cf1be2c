"""Tables that records name (`route_by` and `new_tables`). Pure.

An entry of `tables` with `{route_by}` in its name stands for one table for each value of that field in records, in
lower case. The values are known from what is landed (`jobs.landing.new_tables`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from jobs.spec.base import Expression, Spec
from jobs.spec.table_templates import name_words, rendered
from resources.config_files.mistakes import Mistake, Mistakes
from resources.config_files.models import examine
from resources.errors import ConfigurationError

if TYPE_CHECKING:
    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.tables import Table


class NewTables(Spec):
    """The entries of `tables` with `{route_by}` in their names stand for a table for each value of that field."""

    allow: Expression = Field(
        "[a-z_][a-z0-9_]{0,99}",
        description="regular expression that the whole value, in lower case, must match. No table takes records "
        "with other values (`unrouted`)",
        examples=["order_.*"],
    )
    most: int = Field(100, ge=1, description="at most this many values become tables; others are dead letters")


@dataclass(frozen=True)
class Named:
    """A table that records have named.

    Attributes:
        name: the value of `route_by`, in lower case.
        first: the batch that first had it; earlier batches do not concern the table.
        columns: the columns for which the table's records have had values.
    """

    name: str
    first: int = 0
    columns: tuple[str, ...] = ()


def named_table(entry: Table, named: Named) -> Table:
    """The entry's table for this name. Raises Mistakes if the name has too few parts."""
    return entry.of_name(named, rendered(entry.table, name_words(named.name)))


def all_tables(spec: PipelineSpec, names: Iterable[Named]) -> list[Table]:
    """The tables of a pipeline; `names`: those that records have brought.

    Raises:
        ConfigurationError: the file's names of tables were changed and no longer fit these names.
    """
    if spec.new_tables is None:
        return list(spec.tables)
    try:
        return [named_table(entry, named) for named in names for entry in spec.tables]
    except Mistakes as problem:
        remedy = "take back what was changed in the names of `tables`"
        raise ConfigurationError(problem.found[0].what, where="tables[].table", remedy=remedy) from None


def allowed(spec: PipelineSpec, names: Mapping[str, Named]) -> dict[str, Named]:
    """The names that have tables, without those that the file no longer allows."""
    pattern = spec.new_tables.allow if spec.new_tables else ""
    return {name: one for name, one in names.items() if re.fullmatch(pattern, name)}


def with_own_columns(spec: PipelineSpec, declared: PipelineSpec, table: Table) -> PipelineSpec:
    """The pipeline for this table: with only those brought columns for which the table's own records had values."""
    value, named = spec.source.value, table.named
    if named is None or value.columns == declared.source.value.columns:
        return spec
    kept = {*declared.source.value.columns, *named.columns}
    return spec.with_columns({c: kind for c, kind in value.columns.items() if c in kept})


def refused_names(spec: PipelineSpec, known: Iterable[str], new: Sequence[str]) -> dict[str, str]:
    """New names that cannot become valid tables, and why; if two would have the same table, the first gets it."""
    taken = {table.place: table for table in all_tables(spec, map(Named, known))}
    found = {}
    for name in new:
        tables, problems = [], list[str]()
        for entry in spec.tables:
            try:
                table = named_table(entry, Named(name))
            except Mistakes as problem:
                problems += [mistake.what for mistake in problem.found]
                continue
            tables.append(table)
            document = {**entry.model_dump(exclude_unset=True), "table": table.table}
            problems += [mistake.what for mistake in examine(type(entry), document).mistakes]
            problems += [f"{table.table} is another name's table"] if table.place in taken else []
        if problems:
            found[name] = f"no table can be made for {name!r}: {'; '.join(problems)}"
        else:
            taken |= {table.place: table for table in tables}
    return found


def new_tables_mistakes(spec: PipelineSpec) -> Iterator[Mistake]:
    """Mistakes: options that cannot be combined with tables that records name."""
    if spec.new_tables is None:
        return
    if spec.route_by is None:
        yield Mistake(("new_tables",), "no field names the tables", "name it in `route_by`", at_key=True)
    if "allow" not in spec.new_tables.model_fields_set and any(table.table == "{route_by}" for table in spec.tables):
        what = "`route_by` values contain the namespace (`shop.orders`), but the default `allow` does not match a dot"
        yield Mistake(("new_tables",), what, "write `allow`, such as `shop\\.[a-z0-9_]+`", at_key=True)
    excluded = {
        "source.for_each": spec.source.for_each,
        "commit: together": spec.commit == "together",
    }
    for other in (other for other, there in excluded.items() if there):
        yield Mistake(("new_tables",), f"it does not go with `{other}`", "leave one of them out", at_key=True)
