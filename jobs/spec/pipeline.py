"""The pipeline file: `orchestration/defs/<pipeline>/defs.yaml`, its `attributes` part."""

from __future__ import annotations

import hashlib
import json
import re
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import pyarrow as pa
import yaml
from pydantic import Field, ValidationError, model_validator

from jobs.destinations.registry import kind_of, kinds
from jobs.schema.types import parse_columns, type_name
from jobs.spec.automation import Retry, Trigger
from jobs.spec.base import ByTag, Spec
from jobs.spec.changes import Changes
from jobs.spec.control import Control
from jobs.spec.dead_letters import DeadLetters
from jobs.spec.envelope import with_operation
from jobs.spec.letter_case import case_problems
from jobs.spec.maintenance import Maintenance
from jobs.spec.routing import route_problems
from jobs.spec.source import Source
from jobs.spec.tables import Table
from jobs.spec.unchanged_columns import keep_problems
from resources.errors import ConfigurationError

NAME = re.compile(r"[a-z][a-z0-9_]*")
# Columns of the merge's own SQL (sql/spark).
RESERVED = {"__op", "__order", "__batch", "__i", "__kafka", "__rank", "__deleted", "__key_deleted", "__hit",
            "__kept", "__brought"}  # fmt: skip

if TYPE_CHECKING:
    AnyTable = Table
else:
    # An entry of `tables` is of the model that the kind it names has for it.
    AnyTable = Annotated[reduce(or_, (k.table for k in kinds().values())), Field(discriminator="kind"), ByTag("kind")]


class BatchBounds(Spec):
    """How large a batch may become, and how many a run lands."""

    max_records: int = Field(1_000_000, gt=0, description="upper bound of offsets in one batch")
    max_batches: int = Field(
        1, ge=0, description="batches that one run lands; 0 lands until caught up. A launch may say otherwise"
    )
    time_limit_seconds: int = Field(3600, gt=0, description="after this the landing stops and is retried later")


class Intermediate(Spec):
    """The Iceberg table where batches are landed."""

    connection: str = Field("lake", description="name of the Iceberg connection")
    namespace: str = Field("landing", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="where the table is created")
    suffix: str = Field("tmp", pattern=r"^[A-Za-z0-9_]+$", description="the table is <pipeline>_<suffix>")
    direct: bool = Field(
        False,
        description="the only table, append-only in Iceberg, is written at once; dead letters still go to "
        "<pipeline>_<suffix>. Faster; nothing to replay from",
    )


class Freshness(Spec):
    """How old a table may get: the check `caught_up` goes by `caught_up_through`, Dagster's badge by the last run."""

    warn_minutes: int = Field(30, ge=1, description="older than this: a warning")
    fail_minutes: int = Field(120, ge=1, description="older than this: failed")


class PipelineSpec(Spec):
    """One declared flow: source topics, how to read them, the destination tables."""

    description: str = Field("", description="what people read about the pipeline in Dagster")
    owners: list[str] = Field(default_factory=list, description="e-mail addresses or team:name")
    source: Source
    changes: Changes = Changes()
    batch: BatchBounds = BatchBounds()
    intermediate: Intermediate = Intermediate()
    control: Control = Control()
    spark: str = Field("spark", description="name of the Spark connection")
    tables: list[AnyTable] = Field(min_length=1)
    commit: Literal["each", "together"] = Field(
        "each",
        description="each: a table is committed when it is ready, and waits for no other; together: all tables of a "
        "batch in one transaction of their catalog, which has to offer that (REST)",
    )
    route_by: str | None = Field(
        None,
        description="field (a key column, a column of the value, or a path `column.part`) whose value names the table "
        "that takes the record, with or without its namespace, in upper or lower case",
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
    cron: str = Field("*/5 * * * *", description="when the schedule runs (UTC)")
    trigger: Trigger | None = Field(None, description="starts runs by lag, beside the schedule")
    retry: Retry = Retry()
    paused: bool = Field(
        False, description="true: nothing starts by itself, and each tick says so; a launch by hand still works"
    )
    freshness: Freshness | None = Freshness()
    maintenance: Maintenance = Maintenance()
    since: str = Field(
        "2026-01-01-00:00", pattern=r"^\d{4}-\d{2}-\d{2}-\d{2}:00$", description="first hour that Dagster shows (UTC)"
    )

    @model_validator(mode="before")
    @classmethod
    def _change_data_has_operations(cls, document: object) -> object:
        return with_operation(document)

    @model_validator(mode="after")
    def _names_fit_together(self) -> PipelineSpec:
        problems = [*self._column_problems(), *self._table_problems()]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _column_problems(self) -> list[str]:
        try:
            value = parse_columns(self.source.row)
            key = parse_columns(self.source.key.columns) if self.source.key else None
        except ConfigurationError as problem:
            return [str(problem)]
        return [
            *self._key_problems(value, key),
            *self._name_problems(value.names),
            *case_problems(self, [*value, *(key or [])]),
            *self._op_problems(value),
            *self._column_order_problems(value),
            *route_problems(self, self._key_columns(value, key), list(value)),
        ]

    def _key_problems(self, value: pa.Schema, key: pa.Schema | None) -> list[str]:
        if self.changes.key is None:
            return []
        origin = value if self.changes.key.source == "value" else key
        if origin is None:
            return ["changes.key: the key columns come from the record's key, but `source.key` is missing"]
        problems = []
        unknown = [c for c in self.changes.key.columns if c not in origin.names]
        if unknown:
            where = "source.value" if self.changes.key.source == "value" else "source.key"
            problems.append(
                f"changes.key.columns: {', '.join(unknown)} is not a column of {where} "
                f"(known: {', '.join(origin.names)})"
            )
        structs = all(kind_of(t).capabilities.struct_keys for t in self.tables if t.needs_key)
        problems.extend(
            f"changes.key.columns: {c} is {type_name(origin.field(c).type)}, which cannot identify a row "
            "(use a whole number, decimal, string, binary, boolean, date or timestamp)"
            for c in self.changes.key.columns
            if c in origin.names and _cannot_identify(origin.field(c).type, structs)
        )
        return problems

    def _key_columns(self, value: pa.Schema, key: pa.Schema | None) -> list[pa.Field]:
        origin = value if self.changes.key and self.changes.key.source == "value" else key
        names = self.changes.key.columns if self.changes.key and origin else []
        return [origin.field(c) for c in names if c in origin.names] if origin else []

    def _op_problems(self, value: pa.Schema) -> list[str]:
        op = self.changes.op
        if op is None:
            return []
        if op.field not in value.names:
            return [f"changes.op.field: {op.field} is not a column of source.value"]
        if pa.types.is_nested(value.field(op.field).type):
            return [f"changes.op.field: {op.field} is not a single value"]
        return []

    def _column_order_problems(self, value: pa.Schema) -> list[str]:
        op, order_by = self.changes.op, self.changes.ordered_by
        if not order_by:
            return []
        problems = []
        if order_by not in value.names:
            problems.append(f"changes.order_by: {order_by} is not a column of source.value")
        elif pa.types.is_nested(value.field(order_by).type):
            problems.append(f"changes.order_by: {order_by} is not a single value, so it has no order")
        elif op and op.field == order_by and not op.keep:
            problems.append(f"changes.order_by: {order_by} is the op field, which the tables do not keep")
        deletes = [t.table for t in self.tables if t.mode in ("upsert_delete", "delete")]
        if deletes and not op:
            problems.append(
                f"changes: a tombstone has no {order_by}, so deletes in {', '.join(deletes)} need `changes.op`"
            )
        return problems

    def _name_problems(self, columns: list[str]) -> list[str]:
        """Names that would meet in a table: Spark and most systems do not tell upper from lower case."""
        op = self.changes.op
        kept = [c for c in columns if not (op and op.field == c and not op.keep)]
        lower = [c.lower() for c in kept]
        twice = [c for c in kept if lower.count(c.lower()) > 1]
        problems = [f"source.value.columns: {', '.join(twice)} differ in upper and lower case only"] if twice else []
        taken = sorted(RESERVED.intersection(lower))
        if taken:
            problems.append(f"source.value.columns: {', '.join(taken)} is a name that the merge uses itself")
        for table in self.tables:
            both = sorted({f"_{m}" for m in table.metadata_columns}.intersection(lower))
            if both:
                problems.append(f"tables: {table.table} has {', '.join(both)} from the value and as a metadata column")
        return problems

    def _table_problems(self) -> list[str]:
        names = [(t.kind, t.connection, t.table) for t in self.tables]
        problems = [f"tables: {n[2]} is named twice" for n in sorted({n for n in names if names.count(n) > 1})]
        keyless = [t.table for t in self.tables if t.needs_key and self.changes.key is None]
        if keyless:
            problems.append(f"tables: {', '.join(keyless)} needs `changes.key` (every mode but append does)")
        problems.extend(self._capability_problems())
        if any(t.needs_key for t in self.tables) and not self.changes.order_by:
            problems.extend(self._order_problems())
        problems.extend(keep_problems(self))
        problems.extend(self.maintenance.problems(self.batch.time_limit_seconds, self.tables))
        return problems

    def _capability_problems(self) -> list[str]:
        """What the systems of the tables cannot do."""
        problems = [
            f"tables: {t.table} has mode {t.mode}, which {kind_of(t).title} does not have"
            for t in self.tables
            if t.mode not in kind_of(t).capabilities.modes
        ]
        only = self.tables[0]
        can = kind_of(only).capabilities
        if self.intermediate.direct and (len(self.tables) > 1 or not can.lands_directly or only.mode != "append"):
            able = _titles("lands_directly")
            problems.append(f"intermediate.direct: works with one table alone, in {able} and of mode append")
        elif self.intermediate.direct and only.connection != self.intermediate.connection:
            problems.append("intermediate.direct: the table and `intermediate` must be in the same connection")
        places = {(t.kind, t.connection) for t in self.tables}
        if self.commit == "together" and (len(places) > 1 or not can.commits_together or self.intermediate.direct):
            able = _titles("commits_together")
            problems.append(f"commit: `together` needs tables of one {able} connection, and an intermediate table")
        return problems

    def _order_problems(self) -> list[str]:
        """Where a key may move between partitions, the order of its changes has to be named (DESIGN section 3)."""
        remedy = "name `changes.order_by` (a version column, or `arrival` to accept the order of offsets)"
        if len(self.source.topics) != 1:
            return [f"changes: with several topics nothing orders the changes to one key; {remedy}"]
        if self.changes.key and self.changes.key.source == "value":
            return [f"changes: keys from the value may be in any partition, so nothing orders their changes; {remedy}"]
        return []

    @property
    def meaning_hash(self) -> str:
        """Hash of what a table's rows mean: keys, op mapping, order. A change of it is a new generation."""
        changes = self.changes.model_dump(mode="json")
        return hashlib.sha256(json.dumps(changes, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def key_must_stay(self) -> bool:
        """True where order rests on a key never leaving its partition."""
        return any(t.needs_key for t in self.tables) and not self.changes.order_by


def _titles(capability: str) -> str:
    """The systems that can do this."""
    return " or ".join(kind.title for kind in kinds().values() if getattr(kind.capabilities, capability))


def _cannot_identify(kind: pa.DataType, structs: bool) -> bool:
    """Types that Iceberg refuses for identifier fields: what is equal is not certain, or not one value.

    BigQuery tables compare structs part by part: `structs` allows those.
    """
    if structs and pa.types.is_struct(kind):
        return any(_cannot_identify(kind.field(n).type, structs) for n in range(kind.num_fields))
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))


def load_pipeline_file(path: Path) -> tuple[str, PipelineSpec]:
    """Name and content of one `defs.yaml`; the name is its folder's.

    Raises:
        ConfigurationError: unreadable, not YAML, or not a valid pipeline; one line per problem.
    """
    name = path.parent.name
    if not NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot be a pipeline's name", where=str(path), remedy="use lower case letters, digits and _"
        )
    try:
        document = yaml.safe_load(path.read_text())
        return name, PipelineSpec.model_validate(document["attributes"])
    except OSError as problem:
        raise ConfigurationError(f"cannot be read: {problem.strerror}", where=str(path)) from None
    except (yaml.YAMLError, KeyError, TypeError) as problem:
        raise ConfigurationError(
            f"not a pipeline file: {problem}", where=str(path), remedy="`dg check yaml` shows the line"
        ) from None
    except ValidationError as problem:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'pipeline'}: {e['msg']}" for e in problem.errors()]
        raise ConfigurationError(
            "; ".join(lines), where=str(path), remedy="`dg check yaml` and `dg check defs` show the lines"
        ) from None
