"""Columns of the types `uuid`, `time` and `fixed(n)`, which the intermediate table has as text and bytes.

Its property remembers them, for columns that records have brought and a destination table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from jobs.iceberg.table_property import COLUMN_FORMS
from jobs.schema.found_fields import Path
from jobs.schema.types import form_of, inside, with_form, with_inside


def forms_property(properties: Mapping[str, str], columns: pa.Schema, pipeline: str) -> dict[str, str]:
    """Returns the table property that keeps the forms of these columns; empty if the table has it."""
    forms = [(list(path), form) for path, form in _forms(pa.struct(list(columns)), ())]
    known = [(list(path), form) for path, form in COLUMN_FORMS.read(properties, pipeline)]
    return COLUMN_FORMS.written(forms, pipeline) if forms != known else {}


def with_forms(landed: pa.Schema, properties: Mapping[str, str], pipeline: str) -> pa.Schema:
    """The intermediate table's columns, with the forms that they have."""
    forms = {tuple(path): form for path, form in COLUMN_FORMS.read(properties, pipeline)}
    return pa.schema(list(_with(pa.struct(list(landed)), (), forms))) if forms else landed


def _forms(kind: pa.DataType, at: Path) -> Iterator[tuple[Path, str]]:
    for field in inside(kind):
        path = (*at, field.name)
        if form := form_of(field):
            yield path, form
        yield from _forms(field.type, path)


def _with(kind: pa.DataType, at: Path, forms: Mapping[Path, str]) -> pa.DataType:
    fields = []
    for field in inside(kind):
        path = (*at, field.name)
        found = field.with_type(_with(field.type, path, forms))
        fields.append(with_form(found, forms[path]) if path in forms else found)
    return with_inside(kind, fields)
