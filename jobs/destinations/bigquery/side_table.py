"""The side table of a BigQuery table: landed rows that it refuses. Made with its first letter.

Letters of a load are loaded before its rows, under the name of the attempt. The load of the rows says in its labels
which attempt made it, so whoever finds it there knows whose letters are true: those of others are taken away.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from google.cloud import bigquery as google
from google.cloud.bigquery import SchemaField

from jobs.dead_letters.dead_letter import DeadLetter, DeadLetterGroup
from jobs.destinations.refusal import LETTERS
from jobs.destinations.refused_rows import as_group, as_letter
from jobs.failpoints import failpoint
from resources.bigquery import BigQuery
from sql import render

_TYPES = {pa.string(): "STRING", pa.int32(): "INTEGER", pa.int64(): "INTEGER"}
_SCHEMA = [SchemaField(f.name, _TYPES[f.type]) for f in LETTERS]


@dataclass(frozen=True)
class SideTable:
    """`<table>__dead_letters`. Where it is not there are no letters.

    Attributes:
        table: the destination table.
        where: the destination's name.
    """

    bigquery: BigQuery
    pipeline: str
    table: str
    where: str

    @property
    def name(self) -> str:
        return f"{self.table}__dead_letters"

    def add(self, letters: pa.Table, labels: Mapping[str, str], time_limit: float) -> None:
        """Loads letters. What a run that dies here has loaded is taken away by the next one."""
        if not letters.num_rows:
            return
        if not self._exists():
            self.bigquery.create_table(google.Table(self.bigquery.table_id(self.name), schema=_SCHEMA))
        file = io.BytesIO()
        pq.write_table(letters.cast(_plain(letters.schema)), file)
        file.seek(0)
        job = self.bigquery.submit_load(
            f"batchmerge-{self.pipeline}-letters-{uuid.uuid4().hex}", file, self.name, _SCHEMA, labels
        )
        failure = self.bigquery.wait(job, time_limit)
        if failure is not None:
            raise failure
        failpoint("bigquery.letters")

    def letters(self, most: int, values: bool) -> Iterator[DeadLetter]:
        for row in self._rows("side_table_rows", {"most": most}, values=values):
            yield as_letter(row, self.name, self.where)

    def groups(self) -> Iterator[DeadLetterGroup]:
        for row in self._rows("side_table_groups"):
            yield as_group(row, self.name, self.where)

    def by_batch(self) -> Mapping[int, int]:
        return {int(str(row["batch"])): int(str(row["records"])) for row in self._rows("side_table_batches")}

    def places(self) -> pa.Table | None:
        """``topic, partition, offset, batch`` of the rows that are refused."""
        rows = self._rows("side_table_places")
        names = ("topic", "partition", "offset", "batch")
        schema = pa.schema([LETTERS.field(name) for name in names])
        return pa.Table.from_pylist([{n: row[n] for n in names} for row in rows], schema=schema) if rows else None

    def attempts(self, first: int, last: int) -> Sequence[str]:
        """Who has written letters of these batches so far."""
        return [str(row["attempt"]) for row in self._rows("side_table_attempts", {"first": first, "last": last})]

    def forget(self, first: int, last: int, attempts: Sequence[str], newest_by: str | None = None) -> None:
        """Takes away what these attempts have written of these batches: all of it was judged by others.

        Args:
            newest_by: this attempt has judged the newest change of each key only. Where it has refused that, the key's
                other letters stay: those changes are still not in the table.
        """
        if not attempts:
            return
        path, newest_only = self.bigquery.table_id(self.name), newest_by is not None
        text = render("bigquery", "side_table_forget", table=path, newest_only=newest_only)
        given: dict[str, int | str] = {"first": first, "last": last, "attempts": ",".join(attempts)}
        self.bigquery.change(text, {**given, **({"by": newest_by} if newest_by else {})}, self.where)

    def drop(self) -> None:
        self.bigquery.delete_table(self.name)

    def _rows(
        self, template: str, parameters: Mapping[str, int] | None = None, **said: object
    ) -> Sequence[Mapping[str, object]]:
        if not self._exists():
            return []
        text = render("bigquery", template, table=self.bigquery.table_id(self.name), **said)
        return [dict(row) for row in self.bigquery.read(text, parameters or {}, self.where)]

    def _exists(self) -> bool:
        return self.bigquery.find_table(self.name) is not None


def _plain(schema: pa.Schema) -> pa.Schema:
    """As BigQuery's INTEGER is read from Parquet."""
    return pa.schema([f.with_type(pa.int64()) if pa.types.is_integer(f.type) else f for f in schema])
