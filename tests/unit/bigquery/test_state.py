"""Moving a table's state row, which is one of many in its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from jobs.destinations.bigquery.spec import BigQueryTable
from jobs.destinations.bigquery.state import StateRow, TableState
from jobs.destinations.requirements import require_known_rows
from resources.bigquery import BigQuery
from resources.errors import BatchmergeError, CommitFailed, CommitStateUnknown, InvariantBroken

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
