"""Each table of a pipeline takes its own records, those that a rule gives it or those that name it."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.dead_letters.retry import retry
from jobs.planning.run_plan import plan_run
from jobs.replay.landed import replay_batches
from jobs.replay.revise import merge_tables
from jobs.verify.reconciliation import reconcile
from tests.destinations.conftest import MakeStory
from tests.kit import model
from tests.kit.kinds import KINDS
from tests.kit.records import COLUMNS, KEY, Record, put
from tests.kit.story import COORDINATES, Story, Target, on_targets

MATCHES = {"american": "AA.?", "united": "UA", "nobody": "ZZ"}
ROUTES = [*MATCHES]
CHAPTERS = [
    [put(1, "AA"), put(2, "UA", partition=1), put(3, "XX"), put(4, "UA", partition=1), put(5, "AA")],
    [put(4, "UA", "d", partition=1), Record(0, 5, None), put(1, "AA2", "u")],
]
ROWS_OF = {"american": {1, 5}, "united": {2, 4}, "nobody": set[int]()}


@pytest.fixture(scope="module")
def routed(new_story: MakeStory) -> Story:
    """Two batches: one record that no table takes, a delete by op and one by tombstone."""
    story = new_story(partitions=2)
    tables = [{"kind": "iceberg", "table": f"tests.{name}", "mode": "upsert", **route(name)} for name in ROUTES]
    story = story.edited(tables=tables)
    for chapter, bad in zip(CHAPTERS, (1, 0), strict=True):
        story.produce(*chapter)
        (landed,) = story.land()
        assert landed.counts.quarantined == bad
    return story


def route(name: str) -> dict[str, Any]:
    return {"route": {"field": "name", "matches": MATCHES[name]}}


@pytest.mark.parametrize("name", [ROUTES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in ROUTES[1:])])
@on_targets(always="upsert_delete", shared=True)
def test_table_takes_the_records_that_match(name: str, target: Target, routed: Story) -> None:
    keys, table = ROWS_OF[name], routed.table(target, **route(name))
    table.merge_some(1)
    assert table.rows() == model.expected([r for r in CHAPTERS[0] if r.key in keys], target.mode)
    table.merge()
    expected = model.expected([r for r in routed.records if r.key in keys], target.mode)
    assert table.rows() == expected
    assert table.destination.committed() == table.engine.pipeline.intermediate.committed()
    if keys:
        assert table.replay(1, 2)
        assert table.rows() == expected


# The way from a record to its table is the engine's own: beside one kind it is a matter for `make thorough`.
FIRST = next(iter(KINDS))


@pytest.mark.parametrize("kind", [pytest.param(k, marks=pytest.mark.slow) if k != FIRST else k for k in KINDS])
def test_records_name_their_tables(kind: str, new_story: MakeStory) -> None:
    names = {"route_by": "name", "new_tables": {"allow": "[a-z]+", "most": 2}}
    value = {"columns": COLUMNS, "unknown_fields": "add"}
    story = new_story(source={"key": {"columns": KEY}, "value": value}, **names)
    prefix = f"tests.{story.engine.flow.name}_"
    entry: dict[str, object] = {
        "kind": kind,
        "table": prefix + "{route_by}",
        "mode": "upsert_delete",
        "metadata_columns": COORDINATES,
    }
    engine = story.edited(tables=[{**entry, **KINDS[kind].options}]).engine

    made: list[set[str]] = []  # what `plan` showed before each batch

    def advance(*records: Record) -> tuple[int, int]:
        engine.produce(*records)
        plan = plan_run(engine.pipeline)
        assert not plan.problems
        made.append({t.name.rsplit("_", 1)[-1] for t in plan.tables if any("create" in step for step in t.steps)})
        (landed,) = engine.land()
        assert not merge_tables(engine.pipeline).failed
        return landed.counts.landed, landed.counts.quarantined

    def held() -> dict[str, list[Any]]:
        tables = [d.table.table for d in engine.pipeline.destinations()]
        rows = {table: KINDS[kind].rows(engine.connections, table, ["id"]) for table in tables}
        return {table.removeprefix(prefix): sorted(row["id"] for row in found) for table, found in rows.items()}

    assert engine.pipeline.destinations() == []
    assert advance(put(1, "login"), put(2, "Sale"), put(3, "no table"), put(4, "LOGIN")) == (3, 1)
    assert held() == {"login": [1, 4], "sale": [2]}
    refund = Record(0, 5, {"id": 5, "name": "refund", "op": "u", "reason": "late"})
    assert advance(refund, put(6, "login"), put(7, "other")) == (1, 2)
    assert held() == {"login": [1, 4, 6], "sale": [2]}
    assert made == [{"login", "sale"}, set()]
    engine.document["new_tables"] = {"allow": "[a-z]+", "most": 3}

    done = retry(engine.pipeline)

    # The first one has the room that there is. What cannot become a table says why, and stays.
    assert (done.tried, done.recovered) == (3, 1)
    assert [dead_letter.message.split(":")[0] for dead_letter in done.stay] == [
        "no table takes 'no table'",
        "no table takes 'other'",
    ]
    assert held() == {"login": [1, 4, 6], "refund": [5], "sale": [2]}
    assert {name: one.first for name, one in engine.pipeline.names.items()} == {"login": 1, "sale": 1, "refund": 3}
    # A table has the columns that its own records bring.
    columns = {d.table.table.removeprefix(prefix): [*d.spec.source.row] for d in engine.pipeline.destinations()}
    assert [name for name, own in columns.items() if "reason" in own] == ["refund"]
    # A tombstone names no table and deletes wherever its key is.
    assert advance(Record(0, 4, None), Record(0, 5, None), put(8, "refund")) == (3, 0)
    last = {"login": [1, 6], "refund": [8], "sale": [2]}
    assert held() == last
    for destination in engine.pipeline.destinations():
        assert replay_batches(engine.pipeline, destination, 1, 4)
        assert reconcile(engine.pipeline, destination, 0).wrong == []
    assert held() == last
