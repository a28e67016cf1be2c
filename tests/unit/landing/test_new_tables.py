"""Which names that records bring become tables."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.batch import LandedBatches
from jobs.changes.columns import landing_schema
from jobs.landing.new_tables import NameRule, name_rule
from jobs.landing.readers import record_reader
from jobs.landing.task_report import TaskReport
from jobs.offsets import OffsetRange, TopicPartition
from jobs.spec.new_tables import Named, all_tables, allowed, refused_names, with_own_columns
from jobs.spec.pipeline import PipelineSpec
from resources.errors import ConfigurationError
from tests.kit import specs
from tests.kit.arrow import kafka_records
from tests.kit.batches import batch, landed

RANGES = {TopicPartition("t", 0): OffsetRange(0, 100)}


def document(table: str = "events.{route_by}", allow: str = "[a-z_]+", most: int = 3, **parts: Any) -> dict[str, Any]:
    named = [specs.table(kind, name=table) for kind in ("iceberg", "clickhouse")]
    rule = {"route_by": "kind", "new_tables": {"allow": allow, "most": most}}
    return specs.document(*named, columns={"id": "long", "kind": "string"}, **(rule | parts))


def spec(**parts: Any) -> PipelineSpec:
    return PipelineSpec.model_validate(document(**parts))


def rule_of(made: PipelineSpec, *known: str) -> NameRule:
    rule = name_rule(made, {name: Named(name) for name in known})
    assert rule
    return rule


def read(rule: NameRule, *values: object) -> tuple[list[str | None], dict[str, int]]:
    """Per record why it is bad, and the names that it brings."""
    reader = record_reader(spec(), batch(1, ranges=RANGES), landing_schema(spec()), names=rule)
    ((rows, report),) = reader.with_reports([kafka_records(*((None, value) for value in values))])
    return [e and e["message"] for e in rows.column("error").to_pylist()], dict(report.names)


def kinds(*names: str | None) -> list[dict[str, Any]]:
    return [{"id": n, "kind": name} for n, name in enumerate(names)]


def test_new_names_are_reported_once_each_and_the_others_are_dead_letters() -> None:
    rule = rule_of(spec(), "known")
    errors, names = read(rule, *kinds("Known", "login", "LOGIN", "no table", None, "sale"), b"{", None)
    assert names == {"login": 1, "sale": 5}
    assert [n for n, error in enumerate(errors) if error] == [3, 4, 6]
    assert errors[3] == (
        "no table takes 'no table': `new_tables.allow` is [a-z_]+; widen it, then retry the dead letter"
    )
    assert errors[4] == "the field that names the table is null"


def test_records_that_name_no_table_are_left_out_where_the_pipeline_skips_them() -> None:
    """Not those of names that are allowed and get no table, nor those that nobody can read."""
    skipping = spec(unrouted="skip", most=2, key="id", changes={"tombstones": "skip"})
    values = [*kinds("Known", "no table", None, "login", "sale"), {"kind": None}, {"id": None, "kind": "login"}, b"{"]
    rule: NameRule | None = rule_of(skipping, "known")
    while rule:
        reader = record_reader(skipping, batch(1, ranges=RANGES), landing_schema(skipping), names=rule)
        ((rows, report),) = reader.with_reports([kafka_records(*((None, value) for value in values))])
        rule = rule.after(report.names, skipping)
    assert report.names == {"login": 3}
    filtered = [n for n, op in enumerate(rows.column("op").to_pylist()) if op == "filtered"]
    errors = {n: e["kind"] for n, e in enumerate(rows.column("error").to_pylist()) if e}
    assert (filtered, errors) == ([1, 2, 5], {4: "NoTable", 6: "NullKey", 7: "undecodable"})


def test_a_name_that_is_the_whole_value() -> None:
    whole = spec(table="{route_by}", allow=".+")
    assert [t.table for t in all_tables(whole, [Named("lake.db.orders")])] == ["lake.db.orders"] * 2
    assert list(refused_names(whole, [], ["a.b.c", "plain", "a.b c"])) == ["plain", "a.b c"]


def test_the_first_ones_have_the_room_that_is_left() -> None:
    rule = rule_of(spec(), "known", "other")
    _, names = read(rule, *kinds("b", "a", "b"))
    settled = rule.after(names, spec())
    assert settled
    errors, names = read(settled, *kinds("b", "a", "known", "c"))
    assert names == {"b": 0}
    assert [error is None for error in errors] == [True, False, True, False]
    assert "`new_tables.most` says, 3; raise it" in str(errors[1])
    assert rule.after({"a": 0}, spec()) is None
    full, none = read(rule_of(spec(), *"abc"), *kinds("a", "d"))
    assert (full[0], none) == (None, {})
    assert "as many as" in str(full[1])


def test_a_table_has_the_columns_that_its_records_have_had_values_for() -> None:
    declared = spec(value={"unknown_fields": "add"})
    columns = {**declared.source.value.columns, "user": "string", "price": "double"}
    made = spec(value={"unknown_fields": "add", "columns": columns})
    values = [
        {"id": 1, "kind": "a", "user": "u"},
        {"kind": "a"},
        {"kind": "b", "price": 1.5},
        {"kind": "?", "price": 2},
    ]
    rule = name_rule(made, {"b": Named("b", 1, ("kind",))})
    assert rule
    reader = record_reader(made, batch(1, ranges=RANGES), landing_schema(made), names=rule)
    ((_, report),) = reader.with_reports([kafka_records(*((None, one) for one in values))])
    assert report.columns == {"a": {"id", "kind", "user"}, "b": {"price"}}
    ((table, _), (other, _)) = (all_tables(made, [Named(n, 1, tuple(report.columns[n]))]) for n in "ab")
    own = [list(with_own_columns(made, declared, one).source.value.columns) for one in (table, other, made.tables[0])]
    assert own == [["id", "kind", "user"], ["id", "kind", "price"], list(columns)]


def test_a_name_that_is_not_allowed_any_more_is_left_out() -> None:
    narrower = spec(allow="[b-z]+")
    assert list(allowed(narrower, {name: Named(name) for name in "ab"})) == ["b"]
    assert list(rule_of(narrower, "a", "b").known) == ["b"]


def test_names_that_make_no_right_table() -> None:
    both = spec(table="{route_by[0]}.{route_by[1]}_x", allow=".*")
    found = refused_names(both, ["a.b"], ["c.d", "plain", "a.b.c", "c.d e"])
    assert list(found) == ["plain", "a.b.c", "c.d e"]
    assert "`{route_by[1]}` stands for nothing in the value plain, which has 1 part" in found["plain"]
    assert "a.b_x is another name's table" in found["a.b.c"]
    assert [(t.kind, t.table) for t in all_tables(both, [Named("c.d", 4)])] == [
        ("iceberg", "c.d_x"),
        ("clickhouse", "c.d_x"),
    ]
    with pytest.raises(ConfigurationError, match="take back what was changed"):
        all_tables(both, [Named("plain")])


def test_reports_of_tasks_keep_the_first_place() -> None:
    one = TaskReport(names={"a": 5, "b": 1}, columns={"a": frozenset("x")}, schema_ids={"r": frozenset([1])})
    two = TaskReport(names={"a": 3, "c": 9}, columns={"a": frozenset("y")})
    both = one + two
    assert both.names == {"a": 3, "b": 1, "c": 9}
    assert (both.columns, both.schema_ids) == ({"a": frozenset("xy")}, {"r": frozenset([1])})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"route_by": None}, "new_tables: no field names the tables"),
        ({"table": "events.all"}, "tables[0].table: each value of kind has tables of its own"),
        ({"table": "events.{topic}"}, "`{topic}` stands for nothing"),
        ({"new_tables": None}, "stands for a value of `route_by`. Fix: set `new_tables`"),
        ({"allow": "("}, "new_tables.allow: '(' is not a regular expression"),
    ],
)
def test_mistakes(parts: dict[str, Any], message: str) -> None:
    found = specs.mistakes(document(**parts))
    assert any(message in sentence for sentence in found), found


def test_a_tombstone_names_no_table() -> None:
    assert read(rule_of(spec(), "a"), None) == ([None], {})


def test_a_table_begins_with_the_batch_that_named_it() -> None:
    left = LandedBatches([landed(n) for n in range(4, 7)], complete=False)
    assert [b.number for b in left.since(5).batches] == [5, 6]
    assert (left.since(5).complete, left.since(3).complete, left.since(0).complete) == (True, False, False)
