"""Whose loads a run takes for its own, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.cloud.bigquery import SchemaField, Table
from pyiceberg.io import load_file_io

from jobs.batch import CommittedState, LandedBatches
from jobs.changes.landed_file import LandedFile
from jobs.destinations.bigquery.columns import destination_columns
from jobs.destinations.bigquery.copied_files import MOST_COPIES
from jobs.destinations.bigquery.destination import BigQueryDestination
from jobs.destinations.bigquery.flush import Flush
from jobs.destinations.bigquery.job_sequence import JobSequence
from jobs.destinations.bigquery.loading import LoadedOtherwise, Loader
from jobs.destinations.bigquery.made_with import made_with
from jobs.destinations.bigquery.merge import _discarded
from jobs.destinations.bigquery.sent_rows import SentRows
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.staging_folder import StagingFolder
from jobs.destinations.bigquery.state import StateRow, TableAt
from jobs.spec.pipeline import PipelineSpec
from resources.bigquery import BigQuery
from resources.connections import BigQueryConnection
from resources.errors import CommitFailed, ConfigurationError
from tests.kit import specs
from tests.kit.batches import landed

COLUMNS = {"id": "long", "name": "string", "items": "array<string>", "at": "long", "op": "string"}
TEXT = SchemaField("name", "STRING")


def spec_of(mode: str = "append", changes: Mapping[str, Any] | None = None, **options: object) -> PipelineSpec:
    parts = {name: options.pop(name) for name in ("on_bad_record", "dead_letters") if name in options}
    entry = specs.table("bigquery", mode, "d.t") | options
    changes = {"order_by": "at", "op": {"field": "op"}, **(changes or {})}
    return specs.spec(entry, columns=COLUMNS, key="id", changes=changes, **parts)


def mark(*present: SchemaField, **parts: Any) -> str:
    spec = spec_of(**parts)
    table = specs.entry(spec, BigQueryTable)
    return made_with(spec, table, destination_columns(spec, table), present)


@pytest.mark.parametrize(
    "parts",
    [
        {"metadata_columns": ["offset"]},
        {"deletes": "rows"},
        {"column_types": {"name": "JSON"}},
        {"null_elements": "drop"},
        {"out_of_range": "clamp"},
        {"on_bad_record": "skip"},
        {"changes": {"order_by": "arrival"}},
        {"route": {"topics": ["t"]}},
    ],
    ids=str,
)
def test_rows_that_another_file_makes_differ(parts: dict[str, Any]) -> None:
    assert mark(**parts) != mark()


def test_rows_for_which_the_table_has_other_room_differ() -> None:
    assert len({mark(TEXT), mark(SchemaField("name", "STRING", max_length=3)), mark()}) == 2


@pytest.mark.parametrize(
    "parts", [{"dead_letters": {"max_records": 3}}, {"merge_interval_seconds": 60}, {"time_limit_seconds": 60}], ids=str
)
def test_other_options_leave_rows_as_they_are(parts: dict[str, Any]) -> None:
    assert mark(**parts) == mark()


@dataclass
class Service:
    """Of BigQuery what loads and merges need: its jobs by id; and what was done, in order."""

    connection = SimpleNamespace(reads=[])
    jobs: dict[str, Any] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    row: dict[str, Any] = field(default_factory=dict)

    def table_id(self, table: str) -> str:
        return f"p.{table}"

    def find_job(self, job_id: str) -> Any:
        return self.jobs.get(job_id)

    def wait(self, *_: object) -> None:
        return None

    def finish(self, *_: object) -> None:
        return None

    def read(self, *_: object) -> list[dict[str, Any]]:
        return [self.row]

    def create_lasting_table(self, table: Any) -> None:
        self.done.append(f"create {table.dataset_id}.{table.table_id}")

    def submit_query(self, _: str, text: str, values: Mapping[str, object], __: object) -> None:
        lines = text.split("\n")
        self.done.append(f"{lines[0].split(' (')[0]} {lines[2]} up to {values['last']}")

    def delete_table(self, table: str) -> None:
        self.done.append(f"delete {table}")

    def change(self, _: str, values: Mapping[str, Any], __: str) -> int:
        self.row |= {"generation": values["new_generation"], "moved_by": values["moved_by"]}
        self.done.append(f"name {values['new_intermediate_table']}")
        return 1


class NoDeadLetters:
    def attempts(self, *_: object) -> Sequence[str]:
        return []

    def forget(self, *_: object) -> None:
        return None


def loader(service: Service, by: str) -> Loader:
    batches = LandedBatches([landed(1), landed(2)])
    context = SimpleNamespace(pipeline="p", run_id="run", intermediate=SimpleNamespace(landed=lambda: batches))
    return Loader(
        bigquery=cast(BigQuery, service),
        context=cast(Any, context),
        staging_table="d._t_g1",
        schema=[SchemaField("i", "INTEGER")],
        shape=cast(Any, None),
        table=cast(BigQueryTable, SimpleNamespace(time_limit_seconds=9)),
        where="t",
        refusal=cast(Any, SimpleNamespace(attempt="a")),
        side_table=cast(Any, NoDeadLetters()),
        target=None,
        made_with=by,
    )


@pytest.mark.parametrize(("by", "taken"), [("one file", True), ("another", False), (None, False)])
def test_load_of_another_run_is_taken_if_it_has_the_rows_of_this_file(
    by: str | None, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of earlier versions do not say what made them."""
    service, flush = Service(), Flush((landed(2),))

    def load(_: SentRows, job_id: str, __: Flush, labels: Mapping[str, str], **___: object) -> Any:
        job = SimpleNamespace(job_id=job_id, labels={**labels}, output_rows=18)
        service.jobs[job_id] = job
        return job

    monkeypatch.setattr(SentRows, "load", load)
    monkeypatch.setattr(SentRows, "count", lambda *_: 18)
    monkeypatch.setattr(Loader, "_check", lambda *_: None)
    attempts = JobSequence(cast(BigQuery, service), "load-2", 9)
    loader(service, by or "").fill(flush, attempts)
    if by is None:
        del service.jobs["load-2-1"].labels["batchmerge-made-with"]
    if taken:
        assert loader(service, "one file").fill(flush, attempts)[0] == flush
    else:
        with pytest.raises(LoadedOtherwise):
            loader(service, "one file").fill(flush, attempts)
    assert [*service.jobs] == ["load-2-1"]


@pytest.mark.parametrize("merged", [False, True])
def test_a_load_that_is_given_up_leaves_the_deletes_that_were_merged(merged: bool) -> None:
    """The staging table goes with the load, and nothing of the load can be merged any more."""
    spec, service = spec_of("upsert_delete"), Service()
    table = specs.entry(spec, BigQueryTable)
    row = StateRow("g1", "d._t_g1", "then", "c1", TableAt(CommittedState.after(landed(1)), {}), "before")
    work = BigQueryDestination("p", spec, table, BigQueryConnection(kind="bigquery", project="p"))
    work.__dict__["bigquery"] = service
    if merged:
        job = SimpleNamespace(labels={"batchmerge-kind": "merge"})
        service.jobs[f"{work.attempts_on(row).prefix}-1"] = job
    service.row = {
        "pipeline": "p", "generation": "g1", "intermediate_table": "d._t_g1", "table_created": "then",
        "commit_id": "c1", "state": "", "moved_by": "before",
    }  # fmt: skip
    assert isinstance(_discarded(work, loader(service, "x"), row, "why"), CommitFailed)
    created, copied, deleted, *named = service.done
    other = created.removeprefix("create ")
    assert other.startswith("d._t_tmp_p_")
    assert copied == f"INSERT INTO `p.{other}` FROM `p.d._t_g1` up to 1"
    assert deleted == "delete d._t_g1"
    assert named == ([] if merged else [f"name {other}"]), (
        "of a merge that has taken effect the row says its staging table"
    )


def test_a_merge_takes_its_table_as_the_load_has_found_it() -> None:
    """Each look at a table is a request to BigQuery."""
    spec, target = spec_of("upsert"), Table("p.d.t")
    table = specs.entry(spec, BigQueryTable)
    work = BigQueryDestination("p", spec, table, BigQueryConnection(kind="bigquery", project="p"))
    work.__dict__["bigquery"] = SimpleNamespace(table_id=lambda name: f"p.{name}", read=lambda *_: [{"nulls": 1}])
    target.require_partition_filter = True
    row = StateRow("g1", "d._t_g1", "then", "c1", TableAt(CommittedState.after(landed(1)), {}), "before")
    text, _ = work.bound(replace(loader(Service(), ""), target=target), row, Flush((landed(2),)))
    assert "`_PARTITIONTIME` >= TIMESTAMP '0001-01-01'" in text


FILES = tuple(LandedFile(f"s3://lake/{n}.parquet", 1, 1, (0,), ()) for n in range(2))


@pytest.mark.parametrize(
    ("reads", "folder", "count", "way"),
    [
        (["s3://"], True, 2, "landed"),
        (["s3://"], False, 2, "landed"),
        (["gs://"], True, 2, "copied"),
        ([], True, 2, "copied"),
        (["s3://"], True, 0, "rows"),
        ([], True, MOST_COPIES + 1, "rows"),
        (["gs://"], False, 2, "rows"),
    ],
)
@pytest.mark.parametrize("refused", [False, True])
def test_ways_to_load_a_flush(
    reads: list[str], folder: bool, count: int, way: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Landed files where they are, copies of them, or rows; and rows where BigQuery refuses files."""
    service, done = Service(), list[str]()

    def taking(name: str) -> Callable[..., Any]:
        def take(_: Loader, job_id: str, *__: object, **___: object) -> Any:
            done.append(name)
            if refused and name != "rows":
                raise ConfigurationError("no access", where="t", remedy="give it")
            return SimpleNamespace(job_id=job_id)

        return take

    for method, name in {"submit": "landed", "_load_copies": "copied", "load": "rows"}.items():
        monkeypatch.setattr(Loader, method, taking(name))
    monkeypatch.setattr(Loader, "landed_files", lambda *_: FILES[:1] * count)
    monkeypatch.setattr(service, "connection", SimpleNamespace(reads=reads), raising=False)
    found = replace(loader(service, "x"), as_landed=True)
    found.__dict__["folder"] = StagingFolder("gs://staging", load_file_io({})) if folder else None
    attempts = JobSequence(cast(BigQuery, service), "load-2", 9)
    found._load_once(Flush((landed(2),)), attempts, {})
    assert done == ([way, "rows"] if refused and way != "rows" else [way])


def test_rows_that_are_not_as_landed_are_sent() -> None:
    """As those of a replay."""
    assert loader(Service(), "x")._of_landed_files(Flush((landed(2),)), {}) is None


def test_no_landed_files_are_planned_where_bigquery_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning reads the manifests of the lake."""
    monkeypatch.setattr(Loader, "landed_files", lambda *_: pytest.fail("planned in vain"))
    found = replace(loader(Service(), "x"), as_landed=True)
    found.__dict__["folder"] = None
    assert found._of_landed_files(Flush((landed(2),)), {}) is None
