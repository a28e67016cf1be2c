"""The pipeline file: `orchestration/defs/<pipeline>/defs.yaml`, its `attributes` part."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, field_validator, model_validator

from jobs.decode.envelope_shape import OPERATION
from jobs.destinations.registry import kinds
from jobs.spec.automation import Cron, Retry, Trigger
from jobs.spec.base import ByTag, Spec
from jobs.spec.changes import Changes, Operation
from jobs.spec.control import Control
from jobs.spec.dead_letters import DeadLetters
from jobs.spec.envelope import OP_COLUMN
from jobs.spec.maintenance import Maintenance
from jobs.spec.new_tables import NewTables
from jobs.spec.overrides import Override
from jobs.spec.rules import mistakes
from jobs.spec.source import Source
from jobs.spec.tables import LONGEST, Table
from resources.config_files.mistakes import Mistake, Mistakes, refuse, shown_value

# Dagster does not allow longer names in tags.
NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
# Dagster's pattern.
_OWNER = re.compile(r"team:.+|[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
_SINCE = "%Y-%m-%d-%H:00"
_TEN_YEARS = 10 * 365 * 24 * 60

if TYPE_CHECKING:
    AnyTable = Table
else:
    # Each kind has its own model of an entry of `tables`.
    AnyTable = Annotated[reduce(or_, (k.table for k in kinds().values())), Field(discriminator="kind"), ByTag("kind")]


class BatchBounds(Spec):
    """How large a batch may become, and how many a run lands."""

    max_records: int = Field(2_000_000, gt=0, lt=2**32, description="upper bound of offsets in one batch")
    max_batches: int = Field(
        0,
        ge=0,
        description="batches that one run lands; 0: all that Kafka had when the run began, for five minutes at most",
    )
    time_limit_seconds: int = Field(
        3600, gt=0, le=LONGEST, description="for landing one batch; after this landing stops, and is retried later"
    )
    at_once: int = Field(
        4,
        ge=1,
        description="how many topics are landed (`source.for_each`), and tables of an entry merged, side by side",
    )


class Intermediate(Spec):
    """The Iceberg table where batches are landed."""

    connection: str = Field("lake", description="name of the Iceberg connection")
    namespace: str = Field(
        "landing", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="where the table is created", examples=["landing"]
    )
    suffix: str = Field(
        "tmp", pattern=r"^[A-Za-z0-9_]+$", description="the table is <pipeline>_<suffix>", examples=["tmp"]
    )


class Freshness(Spec):
    """How old a table may get: the check `caught_up` uses `caught_up_through`, Dagster's badge the last run."""

    warn_minutes: int = Field(30, ge=1, le=_TEN_YEARS, description="older than this: a warning")
    fail_minutes: int = Field(
        120, ge=1, le=_TEN_YEARS, description="older than this: Dagster's badge fails, but no run and no check fails"
    )


class PipelineSpec(Spec):
    """One declared flow: source topics, how to read them, the destination tables."""

    description: str = Field("", description="text about the pipeline in Dagster")
    owners: list[str] = Field(default_factory=list, description="e-mail addresses or team:name")
    source: Source
    changes: Changes = Changes()
    batch: BatchBounds = BatchBounds()
    intermediate: Intermediate = Intermediate()
    control: Control = Control()
    spark: str = Field("spark", description="name of the Spark connection")
    tables: list[AnyTable] = Field(min_length=1)
    overrides: dict[str, Override] = Field(
        default_factory=dict,
        description="with `source.for_each`: a topic, or a regular expression that whole topic names match, to the "
        "options that differ for them: `leave_out: true`, or `source`, `changes`, `tables`, `batch`, "
        "`route_by`, `on_bad_record`, `force_optional` as in this file",
    )
    commit: Literal["each", "together"] = Field(
        "each",
        description="each: each table is committed when it is ready; together: all tables of a batch are committed "
        "in one transaction of their REST catalog",
    )
    route_by: str | None = Field(
        None,
        description="field (a key column, a column of the value, or a path `column.part`) whose value names the table "
        "that takes the record, with or without its namespace, in upper or lower case",
    )
    unrouted: Literal["refuse", "skip"] = Field(
        "refuse",
        description="a record that no table takes, by `route`, `route_by` or `new_tables.allow`: refuse (it is bad) or "
        "skip (it is left out, and counts as filtered)",
    )
    new_tables: NewTables | None = Field(
        None,
        description="with `route_by`: each entry of `tables` stands for a table for each value of that field, with "
        "`{route_by}` (or a part of it between dots, `{route_by[0]}`) in its name. The table is "
        "created when the first record has that value",
    )
    ignore_case: bool = Field(
        False,
        description="upper and lower case are the same in the fields of JSON records and in the columns of Iceberg "
        "tables (they always are in BigQuery, and never in ClickHouse)",
    )
    force_optional: bool = Field(
        False,
        description="columns of tables are optional, whatever `source` declares; those of the key stay as they are",
    )
    on_bad_record: Literal["quarantine", "fail", "skip"] = Field(
        "quarantine",
        description="quarantine: land it as a dead letter; fail: stop the batch; skip: count it, keep nothing",
    )
    dead_letters: DeadLetters = DeadLetters()
    cron: Cron = Field("*/5 * * * *", description="when the schedule runs (UTC)")
    interval: str | None = Field(
        None,
        pattern="^([1-9]|[1-5][0-9]|60)s$",
        description="instead of `cron` and `trigger`: a continuous run that lands and merges new records every 1s "
        "to 60s",
        examples=["5s"],
    )
    trigger: Trigger | None = Field(None, description="starts runs by lag, beside the schedule")
    retry: Retry = Retry()
    paused: bool = Field(False, description="true: nothing starts by itself. You can still start runs by hand")
    freshness: Freshness | None = Freshness()
    maintenance: Maintenance = Maintenance()
    since: str = Field(
        "2026-01-01-00:00",
        pattern=r"^\d{4}-\d{2}-\d{2}-\d{2}:00$",
        description="first hour that Dagster shows (UTC)",
        examples=["2026-01-31-00:00"],
    )
    _written: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _completed(cls, document: Any, judge: ModelWrapValidatorHandler[PipelineSpec]) -> PipelineSpec:
        spec = judge(document)
        wanted: dict[str, Any] = {}
        metadata = spec.source.value.envelope.metadata if spec.source.value.envelope else {}
        column = next((column for column, path in metadata.items() if path == OPERATION), None)
        if column and spec.changes.op is None:
            operation = Operation(field=column, keep=column != OP_COLUMN)
            wanted["changes"] = spec.changes.model_copy(update={"op": operation})
        if spec.interval_seconds:
            wanted["maintenance"] = spec.maintenance.for_interval(spec.interval_seconds)
        spec = spec.model_copy(update=wanted) if wanted else spec
        if spec.source.for_each and isinstance(document, dict):
            spec._written = document
        refuse(mistakes(spec))
        return spec

    @field_validator("owners")
    @classmethod
    def _can_be_owners(cls, owners: list[str]) -> list[str]:
        wrong = [number for number, owner in enumerate(owners) if not _OWNER.fullmatch(owner)]
        remedy = "write an e-mail address, or a team like `team:orders`"
        refuse(Mistake((number,), f"{shown_value(owners[number])} is no owner", remedy) for number in wrong)
        return owners

    @field_validator("since")
    @classmethod
    def _is_in_the_calendar(cls, since: str) -> str:
        try:
            year = datetime.strptime(since, _SINCE).year
        except ValueError:
            what = f"{shown_value(since)} is no hour of the calendar"
            raise Mistakes([Mistake((), what, "write it like `2026-01-31-00:00`")]) from None
        if not 1000 <= year < 9999:
            what = f"Dagster cannot show the hours since {shown_value(since)}"
            raise Mistakes([Mistake((), what, "write an hour of the years 1000 to 9998")])
        return since

    @property
    def written(self) -> Mapping[str, Any]:
        """With `source.for_each`: the document as it was written, from which members are made."""
        return self._written

    def with_columns(self, columns: dict[str, str]) -> PipelineSpec:
        """The pipeline whose records' values have these columns; new ones count as brought by records."""
        if columns == self.source.value.columns:
            return self
        source = self.source.model_copy(update={"value": self.source.value.with_columns(columns)})
        return self.model_copy(update={"source": source})

    @property
    def many_tables(self) -> bool:
        """Whether an entry of `tables` stands for a table of each topic, or of each name that records bring."""
        return self.source.for_each is not None or self.new_tables is not None

    @property
    def interval_seconds(self) -> float | None:
        """Seconds between two batches of the continuous run; None if there is none."""
        return float(self.interval.removesuffix("s")) if self.interval else None

    @property
    def own_topics(self) -> set[str]:
        """Topics that the pipeline writes to, which are never among its sources."""
        control = {self.control.topic} if self.control.enabled else set()
        return control | ({self.dead_letters.topic} if self.dead_letters.topic else set())

    @property
    def meaning_hash(self) -> str:
        """Hash of the options that change the meaning of rows: key columns, op mapping, order."""
        return _hash(self.changes.model_dump(mode="json", exclude={"tombstones"}))

    @property
    def order_hash(self) -> str:
        """Hash of keys and order only, with which deletes are kept, independent of the op mapping."""
        return _hash(self.changes.model_dump(mode="json", include={"key", "order_by"}))

    @property
    def key_must_stay(self) -> bool:
        """Whether the order of a key's changes requires that the key never changes its partition."""
        return any(t.needs_key for t in self.tables) and not self.changes.order_by


def _hash(parts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
