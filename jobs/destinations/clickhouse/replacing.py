"""Checks that a table keeps the newest version of each row and hides deleted ones, by the columns that we add."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobs.destinations.clickhouse.present_table import Present
from jobs.destinations.clickhouse.spec import DELETED, VERSION
from jobs.destinations.clickhouse.wanted_table import Layout
from resources.errors import SchemaRefused

_TEXT = r"'(?:[^'\\]|\\.)*'"
_ENGINE = re.compile(rf"(\w+)(?:\(((?:{_TEXT}|[^'()])*)\))?")


def check_replaces(layout: Layout, present: Present) -> None:
    """Requires that an existing table replaces rows by our versions; else inserted rows would silently be hidden, or
    hide others.

    Raises:
        SchemaRefused: its version columns, engine or sorting key are different; or rows of mode append have no version.
    """
    if not layout.versioned:
        _check_hides_nothing(layout, present)
        return
    if wrong := list(_wrong(layout, present)):
        raise SchemaRefused(
            f"the table cannot keep the newest row of each key by this file: {'; '.join(wrong)}",
            where=f"clickhouse {layout.table.table}",
            remedy="name a new table in `tables`, which is created and filled from the landed batches (an existing one "
            "cannot be given this by ALTER), or undo the change of the file",
        )


def _check_hides_nothing(layout: Layout, present: Present) -> None:
    """For mode append: a table of upserts hides rows without a version behind all that have one."""
    engine, written = _ENGINE.match(present.engine_full), {column.name for column in layout.columns}
    if (
        engine
        and "Replacing" in engine[1]
        and VERSION in _columns(engine)
        and VERSION not in written
        # One with a default gives each row a version.
        and re.search(rf"`?{VERSION}`? UInt(64|128)[,)]", present.statement)
    ):
        raise SchemaRefused(
            f"its engine is {engine[0]}, and rows of mode append have no {VERSION}: it would hide them",
            where=f"clickhouse {layout.table.table}",
            remedy="name a new table in `tables` for the mode append, or undo the change of `mode`",
        )


def replaces(layout: Layout, engine: str) -> bool:
    """Whether an engine with these arguments uses our version column, and our deletion mark if there are deletes."""
    found = _ENGINE.match(engine)
    if found is None or "Replacing" not in found[1]:
        return False
    columns = _columns(found)
    return columns[: len(layout.added)] == list(layout.added) and set(columns) <= {VERSION, DELETED}


def _columns(engine: re.Match[str]) -> list[str]:
    """The columns among the arguments; the first ones of a replicated engine are a path and a name, as texts."""
    return re.findall(r"\w+", re.sub(_TEXT, "", engine[2] or ""))


def _wrong(layout: Layout, present: Present) -> Iterator[str]:
    for name, kind in layout.added.items():
        found = present.types.get(name)
        if found is None:
            yield f"it has no column {name} ({kind})"
        elif found != kind:
            yield f"column {name} is {found} in place of {kind}"
    if "MergeTree" not in present.engine:
        # This server does not know the tables behind a distributed one.
        return
    if not replaces(layout, present.engine_full):
        engine = _ENGINE.match(present.engine_full)
        yield f"its engine is {engine[0] if engine else present.engine} in place of {layout.engine}"
    if not _is_sorted(layout, present):
        yield f"it is sorted by {present.sorting_key} in place of {', '.join(layout.keys)}"


def _is_sorted(layout: Layout, present: Present) -> bool:
    """Whether the table is sorted by the key columns; expressions of them alone would not distinguish all keys."""
    keys = set(layout.keys)
    if present.sorting_key.replace("`", "").strip("()").split(", ") == layout.keys:
        return True
    # Imported here: an SQL parser that most tables do not need.
    from jobs.destinations.clickhouse.expressions import sorted_by

    return present.sorting_columns <= keys <= set(sorted_by(present.sorting_key))
