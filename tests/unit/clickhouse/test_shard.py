"""A table on one endpoint: statements that stop older owners, and what a run does that finds rows without a lease."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.destinations.clickhouse.drop_state import drop_state
from jobs.destinations.clickhouse.merge import merge
from jobs.destinations.clickhouse.present_table import Present
from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.state import Lease, state_text
from jobs.destinations.clickhouse.step_inserts import StepInserts
from jobs.destinations.clickhouse.wanted_table import layout_of
from jobs.destinations.stages import Stages
from resources.connections import ClickHouseConnection
from resources.errors import ConfigurationError, TableReplaced
from tests.kit import specs
from tests.kit.batches import committed, landed
from tests.unit.clickhouse.twin import Killed, MemoryStore


@dataclass
class Server:
    """Keeps the statements, and answers questions.

    Attributes:
        answers: by what the question has in it.
    """

    connection: ClickHouseConnection
    name: str = "clickhouse"
    endpoint: str = "h:1"
    sent: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def execute(self, sql: str, settings: dict[str, object] | None = None) -> None:
        self.sent.append((sql, settings or {}))

    def rows(self, sql: str, parameters: dict[str, object] | None = None) -> list[dict[str, Any]]:
        del parameters
        return next((rows for part, rows in self.answers.items() if part in sql), [])


def shard(server: Any, cluster: str | None, mode: str = "append", **options: object) -> Shard:
    key = None if mode == "append" else specs.ID
    spec = specs.spec(specs.table("clickhouse", mode, "d.t", **options), columns={"name": "string"}, key=key)
    table = specs.entry(spec, ClickHouseTable)
    return Shard("p", spec, table, server, 1, layout_of(spec, table, 0, cluster))


@pytest.mark.parametrize(("limit", "seconds"), [(300, 15), (10, 5)])
def test_older_inserts_are_stopped_here_and_where_the_cluster_answers(limit: int, seconds: int) -> None:
    """A dead replica has nothing to stop: it is neither waited for nor an error."""
    server = Server(ClickHouseConnection(kind="clickhouse", endpoints=["h:1"], statement_timeout_seconds=limit))
    shard(server, "c").stop_older(Lease(epoch=10))
    (here, none), (everywhere, settings) = server.sent
    assert ("ON CLUSTER" in here, none) == (False, {})
    assert "ON CLUSTER `c`" in everywhere
    silent = {"distributed_ddl_output_mode": "null_status_on_timeout", "distributed_ddl_task_timeout": seconds}
    assert settings == silent


def test_without_a_cluster_one_server_is_asked() -> None:
    server = Server(ClickHouseConnection(kind="clickhouse", endpoints=["h:1"]))
    shard(server, None).stop_older(Lease(epoch=10))
    assert [("ON CLUSTER" in sql, settings) for sql, settings in server.sent] == [(False, {})]


CONNECTION = ClickHouseConnection(kind="clickhouse", endpoints=["h:1"])


def there(rows: int | None) -> Present:
    return Present("id", "MergeTree", "", "", rows, {}, frozenset(), frozenset(), "id", False, ())


def counted(rows: int) -> dict[str, list[dict[str, Any]]]:
    """The answers about a table whose engine does not know its rows."""
    return {"count(*)": [{"rows": rows}], "`_topic` IN": [{"there": 1}], "max(`_version`)": [{"batch": 9}]}


class StateStore(MemoryStore):
    name, table = "p/d.t/1", ("d", "batchmerge_state")

    def other_pipelines(self) -> list[str]:
        return []

    def forget(self, held: Lease) -> None:
        assert self.row == held
        self.row = None


def merged(server: Server, monkeypatch: pytest.MonkeyPatch, mode: str, rows: int | None, newest: int) -> Lease:
    """The lease that a run has made of a table without one, when it begins to merge the first two landed batches."""
    found, store = shard(server, None, mode), StateStore()
    found.__dict__["store"] = store
    monkeypatch.setattr(Shard, "require_table", lambda _: there(rows))
    batches = [landed(number) for number in range(1, newest + 1)]
    context: Any = SimpleNamespace(intermediate=SimpleNamespace(landed=lambda: SimpleNamespace(batches=batches)))

    def ends(*_: object) -> None:
        raise Killed

    monkeypatch.setattr("jobs.destinations.clickhouse.merge._steps", ends)
    with suppress(Killed):
        merge(found, context, None, batches[:2], Stages())
    assert store.row
    return store.row


@pytest.mark.parametrize(("answer", "rows", "until"), [([{"there": 1}], 20, 5), ([], 20, 0), ([{"there": 1}], 0, 0)])
def test_without_a_lease_all_that_is_landed_may_be_in_the_table(
    answer: list[dict[str, Any]], rows: int, until: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is merged later, since a batch that revises is merged alone."""
    server = Server(CONNECTION, answers={"`_topic` IN": answer})
    assert merged(server, monkeypatch, "append", rows, newest=5).refill_until == until


def test_versions_without_a_lease_are_compared_with_all_that_is_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(CONNECTION, answers={"max(`_version`)": [{"batch": 5}]})
    assert merged(server, monkeypatch, "upsert", 20, newest=5).refill_until == 0
    with pytest.raises(ConfigurationError, match="rows of batch 5, and the landed batches end with batch 4"):
        merged(server, monkeypatch, "upsert", 20, newest=4)


def test_an_insert_names_no_hidden_columns_of_an_engine_that_gets_none() -> None:
    """The file may name the engine of a table that is there; the server would refuse the statement."""
    context: Any = SimpleNamespace(run_id="r")
    present = replace(there(0), engine="Distributed", types={"name": "Nullable(String)"})
    own = shard(Server(CONNECTION), None, engine="Distributed('c', 'd', 't')")
    task = StepInserts(own, context, present)._task(Lease(), [], [], "me")
    assert "_topic_id" not in task.sql


def test_an_insert_names_the_hidden_columns_that_a_table_of_any_engine_has() -> None:
    """`Distributed` over a table of ours: without them, records of a recreated topic would count as there."""
    context: Any = SimpleNamespace(run_id="r")
    types = {"name": "Nullable(String)", "_topic_id": "LowCardinality(String)", "_step": "UInt64"}
    present = replace(there(0), engine="Distributed", types=types)
    own = shard(Server(CONNECTION), None, engine="Distributed('c', 'd', 't')")
    task = StepInserts(own, context, present)._task(Lease(), [], [], "me", step=7)
    assert "_topic_id" in task.sql
    assert task.parameters["step"] == 7


EMPTY, FULL = Server(CONNECTION, answers=counted(0)), Server(CONNECTION, answers=counted(3))


def test_without_a_lease_rows_that_the_engine_does_not_know_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Distributed`: where they counted as none, they came a second time."""
    assert [merged(s, monkeypatch, "append", None, newest=5).refill_until for s in (EMPTY, FULL)] == [0, 5]
    assert merged(EMPTY, monkeypatch, "upsert", None, newest=5).refill_until == 0
    with pytest.raises(ConfigurationError, match="rows of batch 9"):
        merged(FULL, monkeypatch, "upsert", None, newest=5)


def test_with_a_lease_rows_that_the_engine_does_not_know_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.destinations.clickhouse.present_table.describe", lambda *_: there(None))
    empty, full = shard(EMPTY, None), shard(FULL, None)
    for each in (empty, full):
        each.__dict__["store"] = StateStore(row=Lease(state=state_text(committed(5)), table_id="another"))
    with pytest.raises(TableReplaced, match="created again"):
        empty.committed()
    assert full.committed() == committed(5)
    with pytest.raises(ConfigurationError, match="the table has 3 rows"):
        drop_state([full])
    assert drop_state([empty])
