"""Tokens of a chunk's insert: the same at every try, and others once the rows are."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from jobs.destinations.clickhouse import insert_task as module
from jobs.destinations.clickhouse.columns import table_column
from jobs.destinations.clickhouse.insert_task import InsertTask
from jobs.destinations.clickhouse.limits import limited_column
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.spread import NUMBER, Question
from jobs.destinations.clickhouse.steps import Chunk
from jobs.destinations.clickhouse.transitions import Span
from jobs.destinations.refusal import BATCH, OFFSET, PARTITION, TOPIC, Refusal
from jobs.offsets import TopicPartition
from jobs.spark.spark_tasks import reports_in
from jobs.spec.columns import RowColumn
from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection
from resources.errors import BadRecords, TerminalError


@dataclass
class Server(ClickHouseServer):
    """Takes what fits and remembers tokens, as the real one does; a value above `most` does not fit."""

    most: int
    tokens: dict[str, int] = field(default_factory=dict)
    dead_letters: bool = True
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__("c", ClickHouseConnection(kind="clickhouse", endpoints=["h:1"]), "h:1")

    def execute(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        data: bytes | None = None,
    ) -> None:
        assert parameters
        assert settings
        assert data
        rows = pa.ipc.open_file(data).read_all()
        token = str(settings["insert_deduplication_token"])
        if sql == "dead_letters" and not self.dead_letters:
            raise KeyboardInterrupt
        if sql == "insert":
            self._check(rows)
        self.tokens.setdefault(token, rows.num_rows)

    def select_with(
        self, sql: str, data: pa.Table, structure: str, parameters: Mapping[str, object] | None = None
    ) -> pa.Table:
        del structure, parameters
        self.asked.append(sql)
        if sql == "unfit":
            return data.filter(pc.greater(data["n"], self.most))
        self._check(data)
        return data

    def _check(self, rows: pa.Table) -> None:
        if max(rows["n"].to_pylist(), default=0) > self.most:
            problem = TerminalError("it does not fit", where="c")
            problem.facts["code"] = 70
            raise problem


def _task(server: Server, attempt: str = "first") -> InsertTask:
    column = table_column(RowColumn("n", pa.int64(), False, ("value", "n")), {"n": "UInt8"})
    table = ClickHouseTable(kind="clickhouse", table="a.b", mode="upsert", column_types={"n": "UInt8"})
    limited = (limited_column(column, table, None),)
    return InsertTask(
        server=server,
        sql="insert",
        coordinates=None,
        columns=(column,),
        wire=("n",),
        parameters={"lease": "l", "owner": "o"},
        settings={},
        chunks=(_chunk("1-1"),),
        token_prefix="p/t/step",
        query_prefix="q-",
        refusal=Refusal("t", limited, "quarantine", "refuse", attempt, {}),
        dead_letters_sql="dead_letters",
        unfit={"n": Question(server, "unfit", ("n", NUMBER), "n Int64, __bm_number UInt32")},
        fits={"n": Question(server, "fits", ("n",), "n Int64")},
    )


def _chunk(name: str) -> Chunk:
    return Chunk(name, 1, 1, {TopicPartition("t", 0): Span(0, 2)})


def _rows() -> pa.Table:
    place = {TOPIC: ["t"] * 3, PARTITION: [0] * 3, OFFSET: [0, 1, 2], BATCH: [1] * 3}
    return pa.table({"n": [1, 300, 2], **place})


def test_rows_that_fit_once_a_type_is_corrected_are_inserted() -> None:
    """The run died between the rows and their dead letters; the file's types were corrected before the next."""
    server = Server(most=255, dead_letters=False)
    with pytest.raises(KeyboardInterrupt):
        list(_task(server).run([(0, _rows)]))
    assert list(server.tokens.values()) == [2]
    server.most, server.dead_letters = 1000, True
    list(_task(server, "second").run([(0, _rows)]))
    assert list(server.tokens.values()) == [2, 3], "under a token of its own, not deduplicated"


def test_a_retry_has_the_same_tokens() -> None:
    server = Server(most=255)
    list(_task(server).run([(0, _rows)]))
    first = dict(server.tokens)
    list(_task(server).run([(0, _rows)]))
    assert server.tokens == first
    assert list(first.values()) == [2, 1]


def test_another_attempt_writes_its_dead_letters_again() -> None:
    """It takes away what the first has written: under the same token they would be lost."""
    server = Server(most=255)
    list(_task(server).run([(0, _rows)]))
    list(_task(server, "second").run([(0, _rows)]))
    assert list(server.tokens.values()) == [2, 1, 1]


def test_next_chunk_is_read_while_one_is_sent() -> None:
    is_read = threading.Event()

    class Waiting(Server):
        def execute(self, *arguments: Any) -> None:
            assert is_read.wait(60)
            super().execute(*arguments)

    def second() -> pa.Table:
        is_read.set()
        return _rows()

    task = replace(_task(Waiting(most=1000)), chunks=tuple(_chunk(name) for name in ("1-1", "2-2")))
    assert [report.rows for report in reports_in(task.run([(0, _rows), (1, second)]))] == [3, 3]


def _unfit_rows(count: int) -> pa.Table:
    place = {TOPIC: ["t"] * count, PARTITION: [0] * count, OFFSET: list(range(count)), BATCH: [1] * count}
    return pa.table({"n": [1, *[300] * (count - 2), 2], **place})


def test_values_that_do_not_fit_are_found_with_one_question() -> None:
    """A wrong type makes all of a chunk's rows unfit: two queries for each would take hours."""
    server = Server(most=255)
    (report,) = reports_in(_task(server).run([(0, lambda: _unfit_rows(5000))]))
    assert (report.rows, report.refused) == (2, 4998)
    assert server.asked == ["unfit", "fits"], "the second proves that the others fit"


def test_types_without_that_question_are_searched_up_to_a_number_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are spread take many queries each, so that few of them would already take hours."""
    server = Server(most=255)
    task = replace(_task(server), unfit={})
    (report,) = reports_in(task.run([(0, lambda: _unfit_rows(10))]))
    assert (report.rows, report.refused) == (2, 8)
    monkeypatch.setattr(module, "_MOST_QUERIES", len(server.asked))
    server.asked.clear()
    list(task.run([(0, lambda: _unfit_rows(10))]))
    monkeypatch.setattr(module, "_MOST_QUERIES", 16)
    server.asked.clear()
    with pytest.raises(BadRecords, match="column n: at least 7 of 10 values do not fit UInt8, and 16 queries"):
        list(task.run([(0, lambda: _unfit_rows(10))]))
    assert len(server.asked) == 16


def test_one_value_that_does_not_fit_is_enough_to_fail() -> None:
    server = Server(most=255)
    task = replace(_task(server), unfit={})
    task = replace(task, refusal=replace(task.refusal, on_bad_record="fail"))
    with pytest.raises(BadRecords, match="first at offset 1 of t-0"):
        list(task.run([(0, lambda: _unfit_rows(4096))]))
    assert len(server.asked) < 30
