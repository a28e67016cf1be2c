"""A field of a BigQuery table as the pipeline file wants it: the client's `SchemaField`, without the client. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from google.cloud.bigquery import SchemaField

AnyField: TypeAlias = "Field | SchemaField"
"""Wanted or present."""


def by_name(fields: Sequence[AnyField]) -> dict[str, AnyField]:
    """Fields by their names in lower case: BigQuery does not tell upper from lower case."""
    return {field.name.lower(): field for field in fields}


@dataclass(frozen=True)
class Field:
    """A wanted field, with the attributes of `SchemaField`, so that wanted and present fields are read alike.

    Attributes:
        precision, scale: of a declared decimal. A column that we make has all digits of its type, and any length.
    """

    name: str
    field_type: str
    mode: str = "NULLABLE"
    fields: tuple[Field, ...] = ()
    precision: int | None = None
    scale: int | None = None
    max_length: int | None = None

    def to_api_repr(self) -> dict[str, Any]:
        """The field in the form of BigQuery's API, which the client takes wherever it takes a schema."""
        nested = {"fields": [field.to_api_repr() for field in self.fields]} if self.fields else {}
        return {"name": self.name, "type": self.field_type, "mode": self.mode, **nested}

    @classmethod
    def of(cls, field: AnyField) -> Field:
        """A field that is present, as it travels to Spark's workers."""
        limits = field.precision, field.scale, field.max_length
        return cls(field.name, field.field_type, field.mode, tuple(map(cls.of, field.fields)), *limits)
