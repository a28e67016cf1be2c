"""The committed state of BigQuery tables: one row per pipeline and table in ``<dataset>.batchmerge_state``.

The row moves by compare-and-set on its commit id. It names the staging table and its generation, a random id that
is part of every job id: jobs of a lost or abandoned generation can never be taken for ours.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from google.cloud import bigquery
from google.cloud.bigquery import SchemaField

from jobs.batch import PREFIX, CommittedState, LandedBatch
from jobs.destinations.bigquery.job_sequence import JobSequence
from jobs.destinations.bigquery.names import staging_name, state_prefix
from jobs.lineage import RecreatedTopics, joined, recreated_topics
from jobs.only_writer import require_only_writer
from resources.bigquery import BigQuery, Job
from resources.errors import CommitFailed, CommitStateUnknown, InvariantBroken, TableReplaced
from sql import render

STATE_TABLE = "batchmerge_state"
_ATTEMPTS = 5
_RECREATED = PREFIX + "recreated-topics"
_DELETES_SINCE = PREFIX + "deletes-since"
_SCHEMA = [
    SchemaField("pipeline", "STRING", mode="REQUIRED"),
    SchemaField("table_name", "STRING", mode="REQUIRED"),
    SchemaField("generation", "STRING", mode="REQUIRED"),
    SchemaField("intermediate_table", "STRING", mode="REQUIRED"),
    SchemaField("table_created", "STRING", mode="REQUIRED", description="the destination table's identity"),
    SchemaField("commit_id", "STRING", mode="REQUIRED", description="empty before the first batch"),
    SchemaField("batch_number", "INTEGER", mode="REQUIRED"),
    SchemaField("state", "STRING", mode="REQUIRED", description="offsets, topic ids, spec hash and VTTS, as JSON"),
    SchemaField("moved_by", "STRING", mode="REQUIRED"),
    SchemaField("updated_at", "TIMESTAMP", mode="REQUIRED"),
]


@dataclass(frozen=True)
class TableAt:
    """The state of a table with at least one batch.

    Attributes:
        recreated: topics that were recreated since the table has rows.
        deletes_since: the first batch that was merged with the present key and order, by which deletes are kept; 0:
            written by an older version, which did not record it.
    """

    committed: CommittedState
    recreated: RecreatedTopics
    deletes_since: int = 0

    @classmethod
    def after(cls, before: TableAt | None, batches: Sequence[LandedBatch], order: str, untraced_to: int) -> TableAt:
        done = [CommittedState.after(batch, order, untraced_to) for batch in batches]
        states = [*([before.committed] if before else []), *done]
        goes_on = before and not before.committed.orders_otherwise(states[-1].meaning_hash, order)
        since = before.deletes_since if before and goes_on else batches[0].number
        return cls(states[-1], joined(before.recreated if before else {}, recreated_topics(states)), since)

    def to_json(self) -> str:
        recreated = {_RECREATED: self.recreated} if self.recreated else {}
        since = {_DELETES_SINCE: self.deletes_since} if self.deletes_since else {}
        return json.dumps({**self.committed.to_properties(), **recreated, **since})

    @classmethod
    def from_json(cls, text: str) -> TableAt:
        properties = json.loads(text)
        recreated, since = properties.get(_RECREATED, {}), properties.get(_DELETES_SINCE, 0)
        return cls(CommittedState.from_properties(properties), recreated, since)


@dataclass(frozen=True)
class StateRow:
    """The state row as it was read.

    Attributes:
        staging_table: ``dataset.table`` of the staging table.
        table_created: when the destination table was created: BigQuery has no other identity of a table.
        commit_id: the committed batch's; empty before the first.
        at: None before the first batch.
    """

    generation: str
    staging_table: str
    table_created: str
    commit_id: str
    at: TableAt | None
    moved_by: str

    @property
    def committed(self) -> CommittedState | None:
        return self.at.committed if self.at else None

    @property
    def recreated(self) -> RecreatedTopics:
        return self.at.recreated if self.at else {}

    @property
    def next_batch(self) -> int:
        """The number after the committed one, which is in the ids of the jobs that continue this state."""
        return self.committed.batch_number + 1 if self.committed else 1


@dataclass(frozen=True)
class Generation:
    """A random id, and a staging table of a name that there never was."""

    id: str
    staging_table: str

    @property
    def columns(self) -> dict[str, str]:
        """Of the state row."""
        return {"generation": self.id, "intermediate_table": self.staging_table}


class TableState:
    """Reads and moves the state row of one table of one pipeline."""

    def __init__(self, bigquery: BigQuery, pipeline: str, table: str, suffix: str) -> None:
        self._bigquery = bigquery
        self._pipeline = pipeline
        self._table = table
        self._suffix = suffix
        self.state_table = f"{table.split('.', maxsplit=1)[0]}.{STATE_TABLE}"
        self._where = f"bigquery {table}"

    def read(self) -> StateRow | None:
        """The row; None where there is none, or no state table.

        Raises:
            InvariantBroken: there is more than one.
        """
        rows = [row for row in self._rows() if row["pipeline"] == self._pipeline]
        if len(rows) > 1:
            raise InvariantBroken(
                f"{self.state_table} has {len(rows)} rows for this table",
                where=self._where,
                remedy="find out which one is true, and delete the others",
            )
        return _row(rows[0]) if rows else None

    def create(self, table_created: str, seconds: float) -> StateRow:
        """Makes the row, unless another run has; returns it.

        Raises:
            ConfigurationError: another pipeline was first. Its job has the same id, so there is never a row of each.
        """
        state_table = self._create_table()
        created = int(state_table.created.timestamp() * 1000)
        prefix = state_prefix(self._bigquery.table_id(self._table), created)
        # A row that was deleted by hand leaves a job that has done its work: then the next number does it again.
        attempts = JobSequence(self._bigquery, prefix, seconds, closes=lambda _job: False)
        while (row := self.read()) is None:
            self.require_only_writer()
            made = {"table_created": table_created, "moved_by": uuid.uuid4().hex}
            attempts.step(partial(self._insert, {**self._key, **self.new_generation().columns, **made}))
        return row

    def require_only_writer(self) -> None:
        """Call it for a table without a row of this pipeline. Raises ConfigurationError: another pipeline has one."""
        require_only_writer(self._pipeline, {row["pipeline"] for row in self._rows()} - {self._pipeline}, self._where)

    def _rows(self) -> list[bigquery.Row]:
        """The table's rows, of all pipelines."""
        try:
            return self._bigquery.read(self._text("state_read"), {"table_name": self._table}, self._where)
        except TableReplaced:
            # There is no state table yet, or no dataset. Looking first would cost one more request at every read.
            self._bigquery.check_location(self._table.split(".")[0])
            return []

    def hand_over(self, row: StateRow, to: str) -> None:
        """Gives the row to another pipeline, which has no batch yet.

        Raises:
            CommitFailed: the row has moved since.
        """
        theirs = TableState(self._bigquery, to, self._table, self._suffix).new_generation()
        self._update(row, {**theirs.columns, "pipeline": to, "commit_id": "", "batch_number": 0, "state": ""})

    def _insert(self, values: dict[str, str], job_id: str) -> Job:
        return self._bigquery.submit_query(job_id, self._text("state_create"), values, {"batchmerge-kind": "state"})

    def move(self, row: StateRow, after: TableAt) -> None:
        """Moves the row from the state that it was read with to this one.

        Raises:
            CommitFailed: the row has moved since. CommitStateUnknown: the answer was lost and reading back fails too.
        """
        state = after.committed
        self._update(row, {"commit_id": state.commit_id, "batch_number": state.batch_number, "state": after.to_json()})

    def renew(self, row: StateRow, table_created: str, to: Generation | None = None) -> None:
        """Gives the row a new generation, with a staging table of a new name; None: one whose table is to be made.

        Raises:
            CommitFailed: it has moved since.
        """
        self._update(row, {**(to or self.new_generation()).columns, "table_created": table_created})

    def forget(self, row: StateRow) -> None:
        """Removes the row.

        Raises:
            CommitFailed: it has moved since.
        """
        expected = {"generation": row.generation, "committed": row.commit_id}
        self._bigquery.change(self._text("state_forget"), {**self._key, **expected}, self._where)
        if self.read() is not None:
            raise CommitFailed("another run has committed", where=self._where, remedy="try again")

    def _update(self, row: StateRow, values: dict[str, Any]) -> None:
        """Sets columns of the row by compare-and-set."""
        token = uuid.uuid4().hex
        text = self._text("state_update", columns=list(values))
        new = {f"new_{name}": value for name, value in values.items()}
        expected = {"generation": row.generation, "committed": row.commit_id}
        for _ in range(_ATTEMPTS):
            try:
                if self._bigquery.change(text, {**self._key, **expected, **new, "moved_by": token}, self._where) == 1:
                    return
            except (CommitStateUnknown, CommitFailed):
                pass
            found = self.read()
            if found != row:
                break
            # Nobody has moved the row: updates fail while rows of other tables change.
        if found == row:
            raise CommitFailed(
                "the state row could not be moved, although no other run has moved it (BigQuery refuses updates while "
                "other tables' rows change)",
                where=self._where,
                remedy="try again",
            )
        if found is None or found.moved_by != token:
            at = f"batch {found.committed.batch_number}" if found and found.committed else "another state"
            raise CommitFailed(
                f"another run has committed: the table is at {at}", where=self._where, remedy="plan again from there"
            )

    def _create_table(self) -> bigquery.Table:
        wanted = bigquery.Table(self._bigquery.table_id(self.state_table), schema=_SCHEMA)
        wanted.description = "Committed state of the tables that Batchmerge keeps. Do not edit."
        return self._bigquery.find_table(self.state_table) or self._bigquery.create_lasting_table(wanted)

    def new_generation(self) -> Generation:
        generation = uuid.uuid4().hex[:12]
        epoch = int(time.time() * 1000)
        return Generation(generation, staging_name(self._table, self._suffix, self._pipeline, generation, epoch))

    @property
    def _key(self) -> dict[str, str]:
        return {"pipeline": self._pipeline, "table_name": self._table}

    def _text(self, template: str, **more: object) -> str:
        return render("bigquery", template, table=self._bigquery.table_id(self.state_table), **more)


def identity(table: bigquery.Table) -> str:
    """The time of creation, which distinguishes a table from a later one of the same name."""
    return str(table.created.astimezone(UTC).isoformat()) if isinstance(table.created, datetime) else ""


def _row(found: bigquery.Row) -> StateRow:
    return StateRow(
        generation=found["generation"],
        staging_table=found["intermediate_table"],
        table_created=found["table_created"],
        commit_id=found["commit_id"],
        at=TableAt.from_json(found["state"]) if found["state"] else None,
        moved_by=found["moved_by"],
    )
