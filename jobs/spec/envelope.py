"""The envelope of change data: how a record of Debezium or AWS DMS describes a change of a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from jobs.decode.envelope_shape import OPERATION, EnvelopeRules
from jobs.decode.json_dialect import JsonDialect
from jobs.decode.unavailable import DEFAULT, Placeholder
from jobs.spec.base import Spec
from jobs.spec.encoding import BY_COLUMN, Units
from resources.config_files.mistakes import Mistake, refuse

OP_COLUMN = "_op"
AUTO = "auto"
ID = "_id"


class Envelope(Spec):
    """The envelope around a row in change data; `columns` are then the row's, and those that `metadata` names."""

    kind: Literal["debezium", "debezium_flat", "dms", "mongo"] = Field(
        description="debezium: before, after, op; debezium_flat: the row, with __op or __deleted beside its fields "
        "(ExtractNewRecordState); dms: AWS DMS, data and metadata; mongo: Debezium MongoDB, documents as JSON text"
    )
    metadata: dict[str, str] = Field(
        default_factory=dict,
        description="column to path in the envelope, for example `{_lsn: source.lsn, _at: ts_ms, _tx: transaction.id, "
        "_old: before}`; their types are in `columns`. The path `op` is the operation as c, r, u or d",
    )
    tombstones: Literal["skip", "delete"] | None = Field(
        None,
        description="records without a value: skip (a delete came before it; the default) or delete (the default "
        "of debezium_flat)",
    )
    truncates: Literal["refuse", "skip", "apply"] = Field(
        "refuse",
        description="a truncated table: refuse (a dead letter), skip, or apply: delete the rows (modes "
        "upsert_delete, delete) with a smaller `changes.order_by` than the truncation, and leave out "
        "later changes with a smaller one. apply needs an `order_by` that is a whole number from the "
        "envelope",
    )
    without_row: Literal["refuse", "skip"] = Field(
        "refuse", description="an update that brings no row (mongo without full documents): refuse or skip"
    )
    unavailable: Literal["keep", "refuse", "null"] | None = Field(
        None,
        description="a large value that Debezium has left out because the change did not touch it: keep (the "
        "column keeps its value; null if there is no row, and in tables of mode append and delete), "
        "refuse (the record is bad), or null. Left out: keep if all tables are Iceberg or BigQuery "
        "tables of mode upsert or upsert_delete, no column is in `changes.order_by`, and there is no "
        "transform; else refuse",
    )
    placeholder: str = Field(
        DEFAULT,
        description="the placeholder of a left-out value: the connector's `unavailable.value.placeholder`, text or "
        "`hex:…`",
    )
    timestamps: Units = Field(
        "ms", description=f"JSON without schema: the unit of timestamps that are numbers, {BY_COLUMN}"
    )
    decimals: Literal["text", "base64"] = Field(
        "text", description="JSON without schema: how decimals are written; base64: Debezium's `precise`"
    )

    @field_validator("placeholder")
    @classmethod
    def _can_be_found(cls, placeholder: str) -> str:
        try:
            Placeholder(placeholder)
        except ValueError:
            what = f"{placeholder!r} cannot be found in a record"
            refuse([Mistake((), what, "write text, or bytes as `hex:` and hexadecimal digits")])
        return placeholder

    def dialect_mistakes(self, of_json: bool) -> Iterator[Mistake]:
        """Mistakes: options about JSON if none is read; `of_json`: some of the pipeline's keys or values are JSON."""
        for option in ("timestamps", "decimals"):
            if getattr(self, option) != type(self).model_fields[option].default and not (
                of_json and self.kind != "mongo"
            ):
                what = "MongoDB's documents say it themselves" if of_json else "no record is in the format json"
                yield Mistake((option,), f"{what}, so it has no effect", "leave it out")

    @property
    def rules(self) -> EnvelopeRules:
        """The rules for the decoder; those about omitted values depend on the pipeline and are added later."""
        tombstones = self.tombstones or ("delete" if self.kind == "debezium_flat" else "skip")
        return EnvelopeRules(
            self.kind,
            self.metadata,
            skips_tombstones=tombstones == "skip",
            truncates=self.truncates,
            skips_without_row=self.without_row == "skip",
            placeholder=Placeholder(self.placeholder),
            dialect=JsonDialect(self.timestamps, self.decimals),
        )


class HasEnvelope(Spec):
    """The option `envelope`, and its checks."""

    envelope: Envelope | None = Field(
        None, description="change data: debezium, debezium_flat, dms or mongo, or a group with `kind` and options"
    )
    columns: dict[str, str] = Field(default_factory=dict)

    @property
    def takes_new_columns(self) -> bool:
        """Whether records may bring undeclared columns."""
        return False

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, given: Any) -> Any:
        """Writes the envelope out, with the column of the record's operation."""
        if not isinstance(given, dict):
            return given
        envelope, columns = given.get("envelope"), given.get("columns") or {}
        if not envelope or not isinstance(envelope, (str, dict)) or not isinstance(columns, dict):
            return given
        envelope = {"kind": envelope} if isinstance(envelope, str) else envelope
        metadata = envelope.get("metadata") or {}
        if not isinstance(metadata, dict):
            return given
        columns, metadata = dict(columns), dict(metadata)
        # A key (mongo) has no operation.
        is_row = columns.keys() != {ID} if columns else given.get("unknown_fields") == "add"
        if is_row and OPERATION not in metadata.values():
            metadata[OP_COLUMN] = OPERATION
            columns[OP_COLUMN] = "string"
        return {**given, "envelope": {**envelope, "metadata": metadata}, "columns": columns}

    def own_mistakes(self) -> Iterator[Mistake]:
        if self.envelope is None:
            return
        for name in self.envelope.metadata:
            if name not in self.columns:
                path = ("envelope", "metadata", name)
                yield Mistake(path, f"the type of {name} is not declared", "declare it in `columns` too")
        row = set(self.columns).difference(self.envelope.metadata)
        if self.columns.keys() != {ID} and not row and not self.takes_new_columns:
            yield Mistake(("columns",), "no column of the row is declared", "declare the columns of the table")
