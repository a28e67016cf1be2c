"""A destination table's rows as its own system gives them: counted, compared, or some of them as Arrow."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

import pyarrow as pa

from jobs.destinations.held_values import brought_in_range
from jobs.destinations.refusal import HeldColumn
from jobs.spec.columns import RowColumn
from jobs.spec.tables import OutOfRange


class TableReader(ABC):
    """Reads a table for `verify` and for checks after a merge.

    A system with SQL gives `ask`, `present` and the templates ``count_rows``, ``some_rows`` and ``duplicate_keys`` in
    its dialect; the rest follows.

    Attributes:
        columns: of the table's rows, under their names there (`Kind.columns`).
        named_types: columns whose type in the table the pipeline file names, as they are declared.
        held: what the columns hold, where values may be set to fit (`out_of_range`).
        empty_is_null: the system does not tell an empty array from a null one.
    """

    empty_is_null: ClassVar[bool] = False

    def __init__(
        self,
        columns: Sequence[RowColumn],
        named_types: Collection[str] = (),
        held: Sequence[HeldColumn] = (),
        out_of_range: OutOfRange = "refuse",
    ) -> None:
        self.columns = list(columns)
        self.named_types = named_types
        self._fitted = {c.label: c for c in held if out_of_range != "refuse" and c.may_be_set_to_fit}
        self._out_of_range = out_of_range

    @abstractmethod
    def ask(self, template: str, **arguments: object) -> list[pa.Table]:
        """The answers to a query of the table, one of each server that has a part of it.

        ===================  =======================================================  =================================
        template             arguments, beside what the kind itself adds              answer
        ===================  =======================================================  =================================
        ``count_rows``                                                                ``rows``
        ``duplicate_keys``   ``keys``: names of the key columns                       ``duplicates``: keys with more
                                                                                      than one row; null equals null
        ``some_rows``        ``columns``: names; ``limit``: so many rows at random,   these columns
                             0 for all; ``texts``: see there
        ===================  =======================================================  =================================
        """

    @abstractmethod
    def present(self) -> list[str]:
        """Names of the columns that the table really has, but those that the kind adds for itself."""

    def count(self) -> int:
        return int(sum(table["rows"][0].as_py() for table in self.ask("count_rows")))

    def known_count(self) -> int | str | None:
        """Rows, where that costs next to nothing: as the system's metadata has them, or of a small table counted.

        Returns:
            A sentence where the table is too large to be counted at every merge; None where nothing is known.
        """
        return None

    def duplicate_keys(self) -> int | None:
        """Keys with more than one row; None where every merge asks for those that it touched."""
        keys = [c.name for c in self.columns if c.is_key]
        return int(sum(table["duplicates"][0].as_py() for table in self.ask("duplicate_keys", keys=keys)))

    def rows(self, limit: int) -> pa.Table:
        """All rows, or `limit` rows picked at random.

        In the declared types, but for columns that are `apart`.
        """
        names, apart = [c.name for c in self.columns], {c.name for c in self.apart()}
        found = self.ask("some_rows", columns=names, limit=limit, texts=self.texts())
        types = {c.name: c.type for c in self.columns if c.name not in apart}

        def declared(table: pa.Table) -> pa.Table:
            return pa.table({name: table[name].cast(types.get(name, table[name].type)) for name in names})

        return pa.concat_tables(map(declared, found))

    def apart(self) -> list[RowColumn]:
        """Columns whose values `differences` compares: nested ones, those of `named_types`, and those set to fit.

        The others are compared by Spark, in their declared types. Keys and coordinates are never among these: by them
        rows are looked up.
        """
        values = [c for c in self.columns if c.path[0] == "value"]
        named = (*self.named_types, *self._fitted)
        return [c for c in values if pa.types.is_nested(c.type) or c.path[-1] in named or c.name in named]

    def texts(self) -> Mapping[str, str]:
        """Columns that ``some_rows`` is to give as text, with their types there."""
        return {}

    def differences(self, column: RowColumn, expected: pa.Array, found: pa.Array) -> int:
        """How many values of a column that is `apart` are not the ones that the landed changes make of them.

        Args:
            expected: in the declared type. found: as `rows` gave them, in the same order.
        """
        pairs = zip(self.stored(column, self._set_to_fit(column, expected)), found.to_pylist(), strict=True)
        return sum(normalize(one, self.empty_is_null) != normalize(other, self.empty_is_null) for one, other in pairs)

    def _set_to_fit(self, column: RowColumn, values: pa.Array) -> pa.Array:
        """As a merge has set them (`out_of_range`)."""
        held = self._fitted.get(column.name)
        if held is None or self._out_of_range == "refuse":
            return values
        whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        return brought_in_range(whole, held.held, self._out_of_range, held.nullable)

    def stored(self, column: RowColumn, values: pa.Array) -> Sequence[object]:
        """These values of a column that is `apart`, as `rows` gives them when the table holds them."""
        del column
        return list(values.to_pylist())


def normalize(value: object, empty_is_null: bool = False) -> object:
    """A value that equals another one where the two mean the same: NaN equals NaN, maps have no order."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return sorted((name.lower(), normalize(part, empty_is_null)) for name, part in value.items())
    if isinstance(value, list):
        if empty_is_null and not value:
            return None
        parts = [normalize(part, empty_is_null) for part in value]
        # Arrow gives a map as its pairs.
        return sorted(parts, key=repr) if value and isinstance(value[0], tuple) else parts
    if isinstance(value, tuple):
        return tuple(normalize(part, empty_is_null) for part in value)
    return value
