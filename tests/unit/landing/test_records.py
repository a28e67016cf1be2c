"""Kafka records to landed rows, one Arrow batch at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from jobs.changes.columns import KAFKA, landing_schema
from jobs.changes.routing import RouteFilter
from jobs.decode.base import Decoded
from jobs.decode.json_fast import Json
from jobs.decode.verdicts import Verdicts
from jobs.landing.batch_positions import BatchPositions
from jobs.landing.readers import record_reader
from jobs.landing.records import Operations, RecordReader, Truncation
from jobs.landing.row_columns import records_read
from jobs.landing.task_report import TaskReport
from jobs.landing.topic_decoder import TopicDecoder
from jobs.offsets import OffsetRange, TopicPartition
from jobs.schema.types import parse_columns
from jobs.spec.metadata import Metadata
from resources.kafka_records import INSTANT
from tests.kit import specs
from tests.kit.arrow import NOON, as_bytes, kafka_records, row_type
from tests.kit.batches import batch

VALUE = row_type({"id": "long", "name": "string", "op": "string"})
KEY = row_type({"id": "long"})
MAPPED = Operations("op", insert=("c", "r"), update=("u",), delete=("d",))
T0 = TopicPartition("t", 0)


def reader(**parts: Any) -> RecordReader:
    decoders = {name: TopicDecoder(part) for name, part in parts.items() if name.endswith("_decoder") and part}
    return replace(
        RecordReader(
            key_decoder=TopicDecoder(Json(KEY)),
            value_decoder=TopicDecoder(Json(VALUE)),
            key_columns=("id",),
            key_from_value=False,
            refuse_null_keys=True,
            operations=None,
            positions=BatchPositions({T0: 0}),
            value_type=VALUE,
            kafka_type=KAFKA,
        ),
        **parts | decoders,
    )


def problems(landed: pa.RecordBatch) -> list[tuple[str, str] | None]:
    return [(e["stage"], e["kind"]) if e else None for e in landed.column("error").to_pylist()]


def test_upsert_and_tombstone_without_an_op_field() -> None:
    landed = reader().read(kafka_records(({"id": 1}, {"id": 1, "name": "a", "op": "x"}), ({"id": 2}, None)))
    assert landed.column("op").to_pylist() == ["upsert", "delete"]
    assert landed.column("key").to_pylist() == [{"id": 1}, {"id": 2}]
    assert landed.column("value").to_pylist() == [{"id": 1, "name": "a", "op": "x"}, None]
    assert landed.column("kafka").to_pylist()[1] == {"topic": "t", "partition": 0, "offset": 1, "timestamp": NOON}
    assert landed.column("partitionTime").to_pylist() == [NOON, NOON]
    assert problems(landed) == [None, None]


def test_a_deleted_row_needs_no_required_columns_behind_a_transform() -> None:
    rows: list[dict[str, object]] = [
        {"id": 1, "name": None, "op": "d"},
        {"id": 2, "name": None, "op": "c"},
        {"id": 3, "name": "a", "op": "c"},
    ]
    raw = kafka_records(*(({"id": row["id"]}, row) for row in rows))
    good = Verdicts(len(rows)).columns()
    columns = {**dict(zip(raw.schema.names, raw.columns, strict=True)), "result": pa.array(rows, VALUE), **good}
    landed = reader(operations=MAPPED, required=("name",)).read(pa.RecordBatch.from_pydict(columns))
    assert problems(landed) == [None, ("transform", "missing"), None]


@pytest.mark.parametrize(
    ("op", "expected"), [("c", "insert"), ("r", "insert"), ("u", "update"), ("d", "delete"), ("q", None), (None, None)]
)
def test_op_mapping(op: str | None, expected: str | None) -> None:
    landed = reader(operations=MAPPED).read(kafka_records(({"id": 1}, {"id": 1, "op": op})))
    assert landed.column("op").to_pylist() == [expected]
    assert problems(landed) == [None if expected else ("value", "UnknownOperation")]


def test_tombstone_is_a_delete_under_an_op_mapping_too() -> None:
    assert reader(operations=MAPPED).read(kafka_records(({"id": 1}, None))).column("op").to_pylist() == ["delete"]


def test_op_field_need_not_be_a_string() -> None:
    flags = row_type({"id": "long", "gone": "boolean"})
    deletes = Operations("gone", insert=(), update=("false",), delete=("true",))
    taught = reader(value_decoder=Json(flags), value_type=flags, operations=deletes)
    landed = taught.read(kafka_records(({"id": 1}, {"id": 1, "gone": True}), ({"id": 2}, {"id": 2, "gone": False})))
    assert landed.column("op").to_pylist() == ["delete", "update"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        pytest.param(None, {"id": 1}, ("key", "NullKey"), id="no key"),
        pytest.param({"id": None}, {"id": 1}, ("key", "NullKey"), id="null part"),
        pytest.param({}, {"id": 1}, ("key", "NullKey"), id="missing part"),
        pytest.param(b"\xff", {"id": 1}, ("key", "undecodable"), id="key is no JSON"),
        pytest.param({"id": "x"}, {"id": 1}, ("key", "type"), id="key of another type"),
        pytest.param({"id": 1}, b"{not json", ("value", "undecodable"), id="value is no JSON"),
        pytest.param({"id": 1}, {"id": 1, "name": 7}, ("value", "type"), id="number where a string is declared"),
        pytest.param({"id": 1}, {"id": 2**70}, ("value", "range"), id="number too large"),
        pytest.param(b"\xff", b"{not json", ("value", "undecodable"), id="both: the value's problem"),
    ],
)
def test_bad_record_keeps_its_bytes_and_a_key_that_can_be_read(
    key: object, value: object, expected: tuple[str, str]
) -> None:
    landed = reader().read(kafka_records(({"id": 9}, {"id": 9}), (key, value), ({"id": 8}, {"id": 8})))
    assert problems(landed) == [None, expected, None]
    bad = landed.to_pylist()[1]
    assert (bad["key"], bad["value"], bad["op"]) == ({"id": 1} if key == {"id": 1} else None, None, None)
    assert (bad["error"]["key"], bad["error"]["value"]) == (as_bytes(key), as_bytes(value))
    assert bad["kafka"]["offset"] == 1
    assert [row["key"] for row in (landed.to_pylist()[0], landed.to_pylist()[2])] == [{"id": 9}, {"id": 8}]


class Keeping(Json):
    """Says of each record whose name is null that it keeps it."""

    def decode(self, raw: pa.Array) -> Decoded:
        decoded = super().decode(raw)
        kept = {n: ("name",) for n, v in enumerate(decoded.values.to_pylist()) if v and v["name"] is None}
        return replace(decoded, unchanged=kept)


def test_what_a_change_keeps_is_landed_with_it() -> None:
    batch = kafka_records(
        ({"id": 1}, {"id": 1, "name": "a"}), ({"id": 2}, {"id": 2}), (None, {"id": 3}), ({"id": 4}, None)
    )
    keeping = reader(value_decoder=Keeping(VALUE), names_unchanged=True)
    (landed,) = list(keeping([batch]))
    assert landed.column("kept").to_pylist() == [None, ["name"], None, None], "nor does a bad record keep anything"
    assert "kept" not in reader(value_decoder=Keeping(VALUE)).read(batch).schema.names


def test_null_keys_match_where_the_pipeline_says_so() -> None:
    lenient = reader(refuse_null_keys=False)
    landed = lenient.read(kafka_records(({"id": None}, {"id": 1}), (None, {"id": 2})))
    assert problems(landed) == [None, ("key", "NullKey")]
    assert landed.column("key").to_pylist() == [{"id": None}, None]


def test_key_from_the_value() -> None:
    inside = reader(key_decoder=None, key_from_value=True)
    landed = inside.read(
        kafka_records((b"\xffany", {"id": 5, "name": "a"}), (None, None), (None, b"{"), (None, {"id": None}))
    )
    assert landed.column("key").to_pylist() == [{"id": 5}, None, None, None]
    assert problems(landed) == [None, ("key", "NullKey"), ("value", "undecodable"), ("key", "NullKey")]


def test_tombstones_are_filtered_where_the_pipeline_skips_them() -> None:
    skipping = reader(key_decoder=None, key_from_value=True, skips_tombstones=True)
    landed = skipping.read(kafka_records((None, {"id": 5}), (None, None), (None, b"{")))
    assert landed.column("op").to_pylist() == ["upsert", "filtered", None]
    assert problems(landed) == [None, None, ("value", "undecodable")]


def test_a_bad_value_has_its_key_where_that_can_be_read() -> None:
    strict = reader(
        key_from_value=True, value_key_decoder=Json(KEY), value_decoder=Json(row_type({"id": "long", "name": "int"}))
    )
    records = [{"id": 4, "name": 1}, {"id": 7, "name": "text"}, {"id": "?", "name": 1}, {"name": "text"}, b"{"]
    landed = strict.read(kafka_records(*((None, record) for record in records)))
    assert landed.column("key").to_pylist() == [{"id": 4}, {"id": 7}, None, None, None]
    assert problems(landed) == [None, *[("value", kind) for kind in ("type", "type", "type", "undecodable")]]


def test_key_columns_are_in_the_order_of_the_key_not_of_the_record() -> None:
    pair = row_type({"a": "long", "b": "string"})
    turned = pa.struct([pair.field("b"), pair.field("a")])
    two = reader(key_decoder=Json(pair), key_columns=("b", "a"))
    landed = two.read(kafka_records(({"a": 1, "b": "x"}, {"id": 1})))
    assert landed.schema.field("key").type == turned
    assert landed.column("key").to_pylist() == [{"b": "x", "a": 1}]


def test_pipeline_without_a_key_has_no_key_column() -> None:
    landed = reader(key_decoder=None, key_columns=()).read(kafka_records((b"\xff", {"id": 1})))
    assert "key" not in landed.schema.names
    assert problems(landed) == [None]


def test_positions_follow_the_coordinates_over_topics_and_partitions() -> None:
    a1, b0, b1 = TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("b", 1)
    placed = reader(positions=BatchPositions({a1: 0 - 100, b0: 10 - 7, b1: 30 - 0}))
    places = [("b", 1, 0), ("a", 1, 100), ("b", 0, 26), ("a", 1, 109), ("b", 0, 7), ("b", 1, 5)]
    landed = placed.read(kafka_records(*[({"id": 1}, {"id": 1})] * 6, places=places))
    assert landed.column("i").to_pylist() == [30, 0, 29, 9, 10, 35]


def test_columns_that_only_the_table_has_come_as_nulls() -> None:
    wide = parse_columns({"old": "date", "id": "long", "name": "string", "op": "string", "n": "struct<x: int>"})
    optional = pa.struct([f.with_nullable(True) for f in wide])
    landed = reader(value_type=optional).read(kafka_records(({"id": 1}, {"id": 1, "name": "a"}), ({"id": 2}, None)))
    assert landed.column("value").to_pylist() == [{"old": None, "id": 1, "name": "a", "op": None, "n": None}, None]
    assert landed.schema.field("value").type == optional


def test_nested_fields_that_only_the_table_has_and_wider_types() -> None:
    have = row_type({"id": "int", "n": "struct<x: int>", "l": "array<struct<x: int>>"})
    table = pa.struct(
        list(parse_columns({"id": "long", "n": "struct<gone: date, x: long>", "l": "array<struct<x: int, y: string>>"}))
    )
    small = row_type({"id": "int"})
    taught = reader(value_decoder=Json(have), value_type=table, key_decoder=Json(small))
    landed = taught.read(kafka_records(({"id": 1}, {"id": 1, "n": {"x": 2}, "l": [{"x": 3}]}), ({"id": 2}, {"id": 2})))
    assert landed.column("value").to_pylist() == [
        {"id": 1, "n": {"gone": None, "x": 2}, "l": [{"x": 3, "y": None}]},
        {"id": 2, "n": None, "l": None},
    ]
    assert landed.schema.field("value").type == table


def test_each_batch_comes_with_what_was_read() -> None:
    batches = [kafka_records(({"id": 1}, {"id": 1}), (None, b"{")), kafka_records(), kafka_records(({"id": 2}, b"{"))]
    read = list(reader().with_reports(batches))
    assert [rows.num_rows for rows, _ in read] == [2, 1]
    assert [report.records for _, report in read] == [2, 1], "bad ones too"


def test_record_that_no_table_takes_is_a_dead_letter() -> None:
    routes = (RouteFilter(path=("value", "name"), pattern="a|b"), RouteFilter(topics=("u",)))
    given = [({"id": 1}, {"id": 1, "name": "a"}), ({"id": 2}, {"id": 2, "name": "c"}), ({"id": 2}, None)]
    landed = reader(routes=routes).read(kafka_records(*given))
    assert problems(landed) == [None, ("route", "NoTable"), None]
    assert landed.to_pylist()[1]["error"]["value"] == as_bytes(given[1][1])
    assert landed.column("op").to_pylist() == ["upsert", None, "delete"]


def test_record_that_no_table_takes_is_filtered_where_the_pipeline_skips_it() -> None:
    skipping = reader(routes=(RouteFilter(path=("value", "name"), pattern="a"),), skips_unrouted=True)
    given = [({"id": 1}, {"id": 1, "name": "a"}), (None, {"name": "c"}), ({"id": 3}, None), ({"id": 4}, b"{")]
    landed = skipping.read(kafka_records(*given))
    assert landed.column("op").to_pylist() == ["upsert", "filtered", "delete", None]
    assert problems(landed) == [None, None, None, ("value", "undecodable")], "a key matters only to tables"


def test_record_whose_key_cannot_be_read_may_be_for_a_table() -> None:
    """Only where no route looks at the key it is for none, whatever its key."""
    given = [({"id": 1}, {"id": 1, "name": "a"}), (b"{", {"name": "c"}), (None, {"name": "c"})]
    by_key, by_value = (
        reader(routes=(RouteFilter(path=path, pattern="1.*"),), skips_unrouted=True).read(kafka_records(*given))
        for path in (("key", "id"), ("value", "name"))
    )
    assert by_key.column("op").to_pylist() == ["upsert", None, "filtered"]
    assert problems(by_key) == [None, ("key", "undecodable"), None]
    assert by_value.column("op").to_pylist() == ["filtered"] * 3


def test_record_that_a_part_of_its_key_routes_is_bad_without_the_other_part() -> None:
    two = row_type({"region": "string", "id": "long"})
    skipping = reader(
        key_decoder=Json(two),
        key_columns=("region", "id"),
        routes=(RouteFilter(path=("key", "region"), pattern="eu"),),
        skips_unrouted=True,
    )
    landed = skipping.read(kafka_records(*(({"region": region}, {"name": "a"}) for region in ("eu", "us"))))
    assert landed.column("op").to_pylist() == [None, "filtered"]
    assert problems(landed) == [("key", "NullKey"), None]


def test_metadata_that_tables_ask_for() -> None:
    wanted = tuple(map(Metadata.of, ("key", "headers", "header:trace-id", "record as origin")))
    kinds = pa.struct([*KAFKA, *(pa.field(m.path[-1], m.type) for m in wanted), pa.field("asked_before", pa.string())])
    raw = kafka_records((b"k", {"id": 1}), (b"\xff\x00", {"id": 2}), (None, {"id": 3}))
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [[("trace-id", b"old"), ("trace-id", b"new"), ("n", None)], [], None]
    raw = raw.append_column("headers", pa.array(headers, pa.list_(pair)))
    found = reader(key_columns=(), kafka_type=kinds, metadata=wanted, landed_at=1000).read(raw).column("kafka")
    rows = [tuple(row.values())[4:] for row in found.to_pylist()]
    origins = [
        {"topic": "t", "partition": 0, "offset": n, "insertTime": datetime.fromtimestamp(1, UTC)} for n in (0, 1, 2)
    ]
    assert rows == [
        ("k", '{"trace-id": ["old", "new"], "n": null}', "new", origins[0], None),
        ("/wA=", None, None, origins[1], None),
        (None, None, None, origins[2], None),
    ]


def test_headers_that_were_not_kept_are_null() -> None:
    wanted = (Metadata.of("headers"),)
    kinds = pa.struct([*KAFKA, pa.field("headers", pa.string())])
    (row,) = (
        reader(key_columns=(), kafka_type=kinds, metadata=wanted).read(kafka_records((None, {"id": 1}))).to_pylist()
    )
    assert row["kafka"]["headers"] is None


def test_truncations_leave_their_order_and_nothing_else() -> None:
    """They have no key; one without an order is a dead letter, since nobody knows what it takes away."""
    changes = [
        ({"id": 1}, {"id": 1, "op": "c"}),
        (None, {"id": 40, "op": "t"}),
        (None, {"id": 30, "op": "t"}),
        (None, {"op": "t"}),
    ]
    made = reader(operations=MAPPED, truncation=Truncation("op", "id"))
    ((rows, report),) = made.with_reports([kafka_records(*changes)])
    assert report.truncated_below == 40
    assert rows.column("op").to_pylist() == ["insert", "filtered", "filtered", None]
    assert problems(rows) == [None, None, None, ("value", "missing")]
    assert rows.column("value").null_count == 3
    ((_, none),) = made.with_reports([kafka_records(changes[0])])
    both = none + report + replace(report, truncated_below=7)
    assert (none.truncated_below, both.truncated_below) == (None, 40)


@pytest.mark.parametrize(
    ("mode", "deletes", "shown"),
    [("upsert_delete", "leave_out", True), ("delete", "leave_out", True), ("upsert", "rows", True),
     ("upsert", "leave_out", False), ("append", "rows", False)],
)  # fmt: skip
@pytest.mark.parametrize(
    ("value", "records", "bad"),
    [
        pytest.param({}, [{"op": "c", "version": 1}, {"op": "d"}, {"op": "d", "version": 2}, None], [1], id="op"),
        pytest.param(
            {"envelope": {"kind": "debezium", "metadata": {"version": "source.lsn"}}},
            [{"op": "d", "before": {"id": 1, "name": "a"}}, {"op": "d", "before": {"id": 1}}],
            [],
            id="the envelope orders, whose part may be missing in any change",
        ),
        pytest.param(
            {"envelope": "debezium"},
            [
                {"op": "c", "after": {"version": 1}},
                {"op": "d", "before": {"id": 1}},
                None,
                {"op": "d", "before": {"id": 1, "name": "of a row that had none"}},
            ],
            [1],
            id="without REPLICA IDENTITY FULL; the tombstone says nothing new",
        ),
    ],
)
def test_delete_of_a_key_alone_is_bad_where_tables_show_deletes(
    value: dict[str, Any], records: list[Any], bad: list[int], mode: str, deletes: str, shown: bool
) -> None:
    """It brings no order, and would lose to any change of its key that has one, without a word."""
    columns = {"id": "long", "name": "string", "version": "long", **({} if value else {"op": "string"})}
    changes = {"order_by": "version", **({} if value else {"op": {"field": "op"}})}
    tables = [specs.table(mode=mode, deletes=deletes)]
    made = specs.spec(*tables, columns=columns, key={"id": "long"}, value=value, changes=changes)
    reader = record_reader(made, batch(1, ranges={T0: OffsetRange(0, 4)}), landing_schema(made))
    landed = reader.read(kafka_records(*(({"id": 1}, record) for record in records)))
    assert [n for n, found in enumerate(problems(landed)) if found] == (bad if shown else [])
    assert {found for found in problems(landed) if found} <= {("value", "missing")}
    assert landed.column("key").null_count == 0, "so the key counts as stale"


@pytest.mark.parametrize(
    ("route_by", "routes", "bad"),
    [
        (None, [{"field": "name", "matches": "x"}, {"field": "name", "matches": "y"}], [0]),
        (None, [{"topics": ["t"]}, {"topics": ["other"]}], [0]),
        (None, [{"topics": ["other"]}, {"field": "name", "matches": "x"}], []),
        ("name", [None, None], [0]),
    ],
)
def test_deletes_of_a_key_alone_are_bad_where_a_table_that_shows_deletes_takes_them(
    route_by: str | None, routes: list[Any], bad: list[int]
) -> None:
    """Here the first of two tables shows deletes."""
    columns = {"id": "long", "name": "string", "version": "long", "op": "string"}
    tables = [
        specs.table(mode=mode, name=f"n.{name}", **({"route": route} if route else {}))
        for name, mode, route in zip("ab", ("upsert_delete", "append"), routes, strict=True)
    ]
    changes = {"order_by": "version", "op": {"field": "op"}}
    parts: dict[str, Any] = {"source": {"topics": ["t", "other"]}, **({"route_by": route_by} if route_by else {})}
    made = specs.spec(*tables, columns=columns, key={"id": "long"}, changes=changes, **parts)
    reader = record_reader(made, batch(1, ranges={T0: OffsetRange(0, 4)}), landing_schema(made))
    landed = reader.read(kafka_records(*(({"id": 1}, record) for record in [{"op": "d"}, {"op": "d", "version": 1}])))
    assert [n for n, found in enumerate(problems(landed)) if found == ("value", "missing")] == bad


def test_what_a_statement_makes_of_the_key_is_nothing_that_a_delete_brings() -> None:
    statement = """select id, code as op, version, name, upper(name) as shout, 'prod' as env, _topic, _key.id as k,
        cast(id as string) as text, code = 'd' as deleted, lower(src) as db, coalesce(name, src) as both from records"""
    made = specs.spec(
        specs.table(mode="upsert_delete"),
        value={"envelope": {"kind": "debezium", "metadata": {"src": "source.db", "code": "op"}}},
        columns={"id": "long", "name": "string", "version": "long", "src": "string", "code": "string"},
        key={"id": "long"},
        changes={"order_by": "version", "op": {"field": "op"}},
        source={"transform": statement},
    )
    reader = record_reader(made, batch(1, ranges={T0: OffsetRange(0, 4)}), landing_schema(made))
    assert reader.delete_order == ("version", ("name", "shout", "both"), None)


@pytest.mark.parametrize("kind", ["double", "float"])
@pytest.mark.parametrize(("modes", "bad"), [(["upsert", "append"], [1]), (["delete"], [1]), (["append"], [])])
def test_nothing_is_newer_or_older_than_nan(modes: list[str], bad: list[int], kind: str) -> None:
    """Iceberg takes it for the largest number; in BigQuery no change would ever replace its row."""
    tables = [specs.table(mode=mode, table=f"d.{mode}") for mode in modes]
    columns = {"id": "long", "version": kind, "ratio": "double", "op": "string"}
    changes = {"order_by": "version", "op": {"field": "op"}}
    made = specs.spec(*tables, columns=columns, key={"id": "long"}, changes=changes)
    reader = record_reader(made, batch(1, ranges={T0: OffsetRange(0, 5)}), landing_schema(made))
    orders = [1.5, "NaN", "Infinity", None]
    records = [*({"op": "c", "version": order, "ratio": "NaN"} for order in orders), None]
    landed = reader.read(kafka_records(*(({"id": 1}, record) for record in records)))
    assert [n for n, found in enumerate(problems(landed)) if found] == bad
    assert {found for found in problems(landed) if found} <= {("value", "range")}


def test_implausible_record_times_are_ignored() -> None:
    """Of one partition a record comes from a device that is two days ahead; the other producer counts in another unit.
    What is credible beside them counts."""
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    times = [now, now + timedelta(days=2), now + timedelta(hours=23), datetime(9999, 1, 1, tzinfo=UTC)]
    batch = kafka_records(*[({"id": n}, {"id": n, "name": "a", "op": "c"}) for n in range(4)])
    batch = batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", pa.array(times, INSTANT))
    batch = batch.set_column(batch.schema.get_field_index("partition"), "partition", pa.array([0, 0, 0, 1], pa.int32()))
    landed_at = int(now.timestamp() * 1000)
    read = records_read(batch, landed_at)
    assert {tp: (one.records, one.newest) for tp, one in read.items()} == {
        TopicPartition("t", 0): (3, landed_at + 23 * 3600 * 1000),
        TopicPartition("t", 1): (1, None),
    }
    assert TaskReport(read).newest == {T0: landed_at + 23 * 3600 * 1000}
