"""The `changes` part of a pipeline file: how a record becomes a change of a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from jobs.spec.base import Names, Spec
from resources.config_files.mistakes import Mistake


class Key(Spec):
    """Which columns identify a row. They come from the record's key, or from its value."""

    columns: Names = Field(min_length=1, description="names of the key columns")
    source: Literal["kafka_key", "value"] = Field("kafka_key", description="where the key columns are taken from")
    nulls: Literal["refuse", "match"] = Field(
        "refuse", description="a null part in a key: refuse (the record is bad) or match (null equals null)"
    )


class Operation(Spec):
    """A field of the value that has the record's operation. A null value (tombstone) has none."""

    field: str = Field(description="a text column of the value")
    insert: list[str] = Field(default_factory=lambda: ["c", "r", "i", "I"], description="its values that mean insert")
    update: list[str] = Field(default_factory=lambda: ["u", "U"], description="its values that mean update")
    delete: list[str] = Field(default_factory=lambda: ["d", "D"], description="its values that mean delete")
    keep: bool = Field(False, description="keep the field as a column of the destination tables")

    def own_mistakes(self) -> Iterator[Mistake]:
        seen: set[str] = set()
        for operation, values in (("insert", self.insert), ("update", self.update), ("delete", self.delete)):
            for value in values:
                if value in seen:
                    what = f"the value {value!r} is mapped to more than one operation"
                    remedy = "name all three of `insert`, `update` and `delete`: those left out have default values"
                    yield Mistake((operation,), what, remedy)
                seen.add(value)


class Changes(Spec):
    """How records become changes, and what orders the changes of one key."""

    key: Key | None = Field(None, description="what identifies a row. Every mode but append needs it")
    op: Operation | None = Field(None, description="left out: a value is an upsert, a tombstone is a delete")
    tombstones: Literal["delete", "skip"] = Field(
        "delete",
        description="a record without a value: delete (of the row with its key; if the key is in the value, the "
        "record is bad) or skip (it is left out, and counts as filtered)",
    )
    order_by: str | None = Field(
        None,
        description="a value column (LSN, version, timestamp) whose larger value wins. `arrival`: the order of "
        "batches, topics, partitions and offsets, even if a key may move between partitions. Tables "
        "with a key then cannot be replayed from Kafka, unless there is only one partition",
    )

    @property
    def ordered_by(self) -> str | None:
        """The column that orders the changes of one key; None: the order of arrival."""
        return None if self.order_by == "arrival" else self.order_by
