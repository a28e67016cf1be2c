"""Moving a table's state row, which is one of many in its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from google.cloud.bigquery import QueryJob

from jobs.batch import CommittedState, LandedBatches
from jobs.destinations.bigquery.destination import BigQueryDestination
from jobs.destinations.bigquery.flush import with_state
from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.state import StateRow, TableAt, TableState
from jobs.destinations.bigquery.work import TableWork
from jobs.destinations.merge_context import MergeContext
from jobs.destinations.requirements import require_known_rows
from resources.bigquery import BigQuery
from resources.connections import BigQueryConnection
from resources.errors import BatchmergeError, CommitFailed, CommitStateUnknown, InvariantBroken
from tests.kit import specs
from tests.kit.batches import landed

ROW = StateRow("g1", "d._t_1", "then", "", None, "before")


@dataclass
class Service:
    """Of BigQuery what a state row needs; each answer to a change is an error, or how many rows it changes."""

    answers: list[type[BatchmergeError] | int]
    row: dict[str, str] = field(
        default_factory=lambda: {
            "pipeline": "p", "generation": "g1", "intermediate_table": "d._t_1", "table_created": "then",
            "commit_id": "", "state": "", "moved_by": "before",
        }
    )  # fmt: skip

    def table_id(self, table: str) -> str:
        return f"p.{table}"

    def read(self, *_: object) -> list[dict[str, str]]:
        return [self.row]

    def change(self, _: str, values: Mapping[str, Any], where: str) -> int:
        answer = self.answers.pop(0)
        if not isinstance(answer, int):
            raise answer("no", where=where)
        if answer:
            self.row |= {"generation": values["new_generation"], "moved_by": values["moved_by"]}
        return answer


def renew(service: Service) -> None:
    TableState(cast(BigQuery, service), "p", "d.t", "tmp").renew(ROW, "then")


def test_a_table_without_a_state_row_may_have_been_renamed() -> None:
    table = BigQueryTable(kind="bigquery", table="d.new", mode="append")
    with pytest.raises(InvariantBroken) as caught:
        require_known_rows(3, table, "bigquery d.new", "bring the row back")
    assert caught.value.remedy.startswith("if the table was renamed, give it its old name again; else bring the row")


def test_state_says_since_when_deletes_have_their_order() -> None:
    """Another operation alone leaves deletes as they are; states of before do not say it."""

    def after(before: TableAt | None, first: int, meaning: str, order: str) -> TableAt:
        batches = [landed(number, meaning_hash=meaning) for number in (first, first + 1)]
        return TableAt.from_json(TableAt.after(before, batches, order, 0).to_json())

    began = after(None, 3, "by lsn", "lsn")
    other_op = after(began, 5, "by lsn, other op", "lsn")
    other_order = after(other_op, 7, "by version", "version")
    assert [at.deletes_since for at in (began, other_op, other_order)] == [3, 3, 7]
    assert after(other_order, 9, "by version", "version").deletes_since == 7
    older = TableAt(began.committed, {})
    assert [after(older, 5, *by).deletes_since for by in (("by lsn", "lsn"), ("by version", "version"))] == [0, 5]


def upserts(service: Mock, order_by: str) -> BigQueryDestination:
    """A table, and what it asks of BigQuery."""
    columns, table = {"id": "long", "version": "long", "op": "string"}, specs.table("bigquery", "upsert_delete", "d.t")
    spec = specs.spec(table, columns=columns, key="id", changes={"order_by": order_by, "op": {"field": "op"}})
    connection = BigQueryConnection(kind="bigquery", project="p")
    work = BigQueryDestination("p", spec, specs.entry(spec, BigQueryTable), connection)
    work.__dict__["bigquery"] = service
    return work


def test_a_table_that_keeps_no_deletes_is_not_asked_whether_it_lost_them() -> None:
    service = Mock()
    at = TableAt(CommittedState.after(landed(3)), {}, 0)
    upserts(service, "arrival").remember_deletes(Mock(), replace(ROW, commit_id="c3", at=at))
    assert service.mock_calls == []


@pytest.mark.parametrize(("since", "remembered"), [(0, [1, 2, 3]), (2, [2, 3]), (3, [3])])
def test_only_deletes_of_the_present_order_are_remembered(
    since: int, remembered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, loader, staging = Mock(), Mock(), Mock(labels={"batchmerge-deletes": "lost"})
    work = upserts(service, "version")
    monkeypatch.setattr(TableWork, "present_staging_table", lambda *_: staging)
    monkeypatch.setattr(TableWork, "loader", lambda *_: loader)
    known = LandedBatches([landed(number) for number in (1, 2, 3, 4)], complete=False)
    context = cast(MergeContext, SimpleNamespace(intermediate=SimpleNamespace(landed=lambda: known)))
    at = TableAt(CommittedState.after(landed(3)), {}, since)
    work.remember_deletes(context, replace(ROW, commit_id="c3", at=at))
    ((flush,),) = (call.args for call in loader.copy.call_args_list)
    assert [batch.number for batch in flush.batches] == remembered
    service.add_labels.assert_called_once_with(staging, {"batchmerge-deletes": "kept"})


@pytest.mark.parametrize("answers", [[1], [CommitFailed, 1], [CommitStateUnknown, CommitFailed, 1]])
def test_changes_of_other_rows_do_not_count(answers: list[type[BatchmergeError] | int]) -> None:
    service = Service([*answers])
    renew(service)
    assert service.row["moved_by"] != "before"
    assert service.answers == []


@pytest.mark.parametrize(
    ("row", "says"), [({"generation": "g2", "moved_by": "other"}, "another run"), ({}, "could not be moved")]
)
def test_change_of_this_row_is_another_run(row: dict[str, str], says: str) -> None:
    service = Service([CommitFailed] * 9)
    service.row |= row
    with pytest.raises(CommitFailed, match=says):
        renew(service)
    assert len(service.answers) == (8 if row else 4)


@dataclass
class WithJobs(Service):
    """Statements do what they say, and there may be jobs; the destination table was dropped."""

    answers: list[type[BatchmergeError] | int] = field(default_factory=list)
    jobs: dict[str, Any] = field(default_factory=dict)

    def read(self, *_: object) -> list[dict[str, str]]:
        return [self.row] if self.row else []

    def change(self, _: str, values: Mapping[str, Any], where: str) -> int:
        del where
        new = {name.removeprefix("new_"): value for name, value in values.items() if name.startswith("new_")}
        self.row = {**self.row, **new, "moved_by": values["moved_by"]} if new else {}
        return 1

    def find_job(self, job_id: str) -> Any:
        return self.jobs.get(job_id)

    def wait(self, *_: object) -> None:
        return None

    def find_table(self, _: str) -> None:
        return None

    def delete_table(self, _: str) -> None:
        return None


def test_state_is_forgotten_also_where_a_run_died_before_it_moved_the_row() -> None:
    table = specs.entry(specs.spec(specs.table("bigquery", "append", "d.t")), BigQueryTable)
    connection = BigQueryConnection(kind="bigquery", project="p")
    destination, service = BigQueryDestination("p", specs.spec(), table, connection), WithJobs()
    destination.__dict__["bigquery"] = service
    text = with_state("INSERT", TableAt(CommittedState.after(landed(1)), {}))
    job = Mock(spec=QueryJob, labels={"batchmerge-kind": "merge"}, query=text)
    service.jobs[f"{destination.attempts_on(ROW).prefix}-1"] = job
    assert destination.drop_state()
    assert service.row == {}
