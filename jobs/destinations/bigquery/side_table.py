"""The side table of a BigQuery table.

Dead letters of a load are loaded before its rows, with the id of the attempt. The load of the rows has the id of its
attempt in its labels, so every run can tell which dead letters are true: those of other attempts are deleted.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from google.cloud import bigquery as google
from google.cloud.bigquery import SchemaField

from jobs.destinations.bigquery.names import new_job_id
from jobs.destinations.bigquery.staged_files import dead_letters_as_loaded
from jobs.destinations.refusal import DEAD_LETTER_ROW
from jobs.destinations.side_table import Parameters, SideTable
from jobs.failpoints import failpoint
from resources.bigquery import BigQuery, Job
from sql import render

_TYPES = {pa.string(): "STRING", pa.int32(): "INTEGER", pa.int64(): "INTEGER"}
_SCHEMA = [SchemaField(f.name, _TYPES[f.type]) for f in DEAD_LETTER_ROW]


@dataclass(frozen=True)
class BigQuerySideTable(SideTable):
    """`<table>__dead_letters`.

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

    def add(self, dead_letters: pa.Table, labels: Mapping[str, str], time_limit: float) -> None:
        """Loads dead letters. If this run dies here, the next one deletes them."""
        file = io.BytesIO()
        pq.write_table(dead_letters_as_loaded(dead_letters), file)
        file.seek(0)
        self._load(self.bigquery.submit_load, file, labels, time_limit)

    def add_files(self, files: Sequence[str], labels: Mapping[str, str], time_limit: float) -> None:
        """Loads dead letters that tasks have written where BigQuery reads them."""
        if files:
            self._load(self.bigquery.submit_load_from, files, labels, time_limit)

    def _make(self) -> None:
        """Creates it where it is missing; one that an older version has made loses its dataset's expiry."""
        self.bigquery.create_lasting_table(google.Table(self.bigquery.table_id(self.name), schema=_SCHEMA))

    def _load(self, submit: Callable[..., Job], source: object, labels: Mapping[str, str], time_limit: float) -> None:
        self._make()
        job = submit(new_job_id(self.pipeline, "letters"), source, self.name, _SCHEMA, labels)
        self.bigquery.finish(job, time_limit)
        failpoint("bigquery.letters")

    def drop(self) -> None:
        self.bigquery.delete_table(self.name)

    @property
    def stage(self) -> str:
        return self.where

    def rows(self, template: str, given: Parameters, **said: object) -> Sequence[Mapping[str, object]]:
        if self.bigquery.find_table(self.name) is None:
            return []
        text = render("bigquery", template, table=self.bigquery.table_id(self.name), **said)
        return [dict(row) for row in self.bigquery.read(text, _joined(given), self.where)]

    def change(self, template: str, given: Parameters, **said: object) -> None:
        text = render("bigquery", template, table=self.bigquery.table_id(self.name), **said)
        self.bigquery.change(text, _joined(given), self.where)


def _joined(given: Parameters) -> dict[str, int | str]:
    """Parameters of queries: lists are joined to one text, which the templates split."""
    return {name: value if isinstance(value, int | str) else ",".join(value) for name, value in given.items()}
