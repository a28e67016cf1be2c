"""Columns that records bring while a batch is landed: real files, and records without Kafka.

With Kafka and with what the tables make of it: `tests/destinations/test_evolution.py`.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from jobs import failpoints
from jobs.batch import CommittedState, Counts, LandedBatch
from jobs.destinations.takes import Takes, Taking, takes_nothing
from jobs.iceberg.append import Append
from jobs.iceberg.table_commit import TableCommit
from jobs.landing import sample
from jobs.landing.batch_records import BatchRecords
from jobs.landing.intermediate import IntermediateTable
from jobs.landing.new_columns import Written, write_with_new_columns
from jobs.landing.publish import publish_read
from jobs.landing.ranges import LandedRanges
from jobs.landing.reads import WantedRead
from jobs.landing.registry_schemas import Registries
from jobs.landing.task_report import TaskReport
from jobs.landing.unknown_fields import unknown_field_properties
from jobs.offsets import OffsetRange
from jobs.pipeline import Pipeline
from jobs.planning.plan import TopicState
from jobs.schema.found_fields import FoundField, FoundFields
from jobs.spark.spark_tasks import reports_in
from jobs.spec.landed_columns import with_landed_columns
from resources.errors import BatchmergeError, ConfigurationError, Unavailable
from resources.iceberg import IcebergCatalog
from resources.kafka import KafkaCluster
from tests.kit import specs
from tests.kit.arrow import kafka_records
from tests.kit.batches import P0, TOPIC_IDS, batch
from tests.kit.interrupting import dying_at
from tests.kit.lake import lake_connection

# Before the batch is planned.
ASKED_AT = 10


class Topics:
    """Stands for the Kafka cluster."""

    def describe(self, _: object) -> tuple[dict[str, str], object]:
        return TOPIC_IDS, None


class Place:
    """A pipeline's tables in a catalog of their own."""

    def __init__(self, folder: Path, parts: Mapping[str, object] | None = None, **value: object) -> None:
        self.connection = lake_connection(folder)
        self.declared = specs.spec(columns={"id": "long not null"}, value=value, **(parts or {}))
        self.committed: CommittedState | None = None
        self.taking: Taking = takes_nothing
        self.within = False

    @property
    def table(self) -> IntermediateTable:
        plain = IntermediateTable(
            "p", self.declared, IcebergCatalog("lake", self.connection), reads=self._read, taking=self.taking
        )
        return replace(plain, spec=with_landed_columns(self.declared, plain.found()[0]))

    def land(self, *values: object) -> LandedBatch:
        self.values = values
        table, before = self.table, self.committed
        table.prepare()
        made = batch(
            (before.batch_number if before else 0) + 1,
            ranges={P0: OffsetRange(0, len(values))},
            previous=before.commit_id if before else None,
            commit_id=str(uuid.uuid4()),
            meaning_hash=self.declared.meaning_hash,
        )
        topics = TopicState({}, {P0: len(values)}, {}, asked_at=ASKED_AT)
        self.within = True
        landed = publish_read(table.read(None, Topics(), made, before, topics), {})  # type: ignore[arg-type]
        self.within = False
        self.committed = table.committed()
        return landed

    def _read(self, _: object, wanted: WantedRead) -> list[TaskReport]:
        """As one of Spark's tasks would."""
        records = kafka_records(*((None, value) for value in self.values))
        return reports_in(wanted.task([records]))

    def rows(self) -> list[dict[str, Any]]:
        """The values of good records."""
        table = IcebergCatalog("lake", self.connection).require(self.table.identifier)
        good = (row["value"] for row in table.scan().to_arrow().to_pylist() if row["value"])
        return sorted(good, key=lambda value: value["id"])


def test_batch_with_new_fields_is_landed_with_columns_for_them(tmp_path: Path) -> None:
    place = Place(tmp_path, columns={"id": "long not null"}, unknown_fields="add")
    first = place.land({"id": 1})
    assert (first.counts.landed, first.watermark.caught_up_through) == (1, ASKED_AT)
    second = ({"id": 2, "new": {"deep": 1.5}}, {"id": 3, "note": 7}, {"id": 4, "note": "text"})
    with dying_at(failpoints.NEW_COLUMNS):
        place.land(*second)
    assert place.committed == place.table.committed(), "the columns are there, and the batch is not"
    columns = {"id": "long not null", "new": "struct<deep: double>", "note": "text"}
    assert place.table.spec.source.value.columns == columns
    landed = place.land(*second)
    assert (landed.number, landed.counts.landed, landed.unknown) == (2, 3, {})
    more = place.land({"id": 5, "later": 1})
    assert more.new_columns == {"later": "long"}
    assert [batch.new_columns for batch in place.table.landed().batches][2:] == [{"later": "long"}]
    none = {"new": None, "note": None, "later": None}
    assert place.rows() == [
        {**none, "id": 1}, {**none, "id": 2, "new": {"deep": 1.5}}, {**none, "id": 3, "note": "7"},
        {**none, "id": 4, "note": "text"}, {**none, "id": 5, "later": 1},
    ]  # fmt: skip


def test_a_batch_loads_its_table_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To begin and to publish: each is a request to the catalog."""
    place, plain = Place(tmp_path), IcebergCatalog.load
    place.land({"id": 1})
    loads = list[str]()

    def load(self: IcebergCatalog, identifier: str) -> Any:
        loads.extend([identifier] * place.within)
        return plain(self, identifier)

    monkeypatch.setattr(IcebergCatalog, "load", load)
    place.land({"id": 2})
    assert loads == ["landing.p_tmp"] * 2


def test_fields_with_dots_in_their_names_become_columns(tmp_path: Path) -> None:
    place = Place(tmp_path, columns={"id": "long not null"}, unknown_fields="add")
    place.land({"id": 1, "http.status": 200, "status": 7, "s": {"x.y": 1}})
    landed = place.land({"id": 2, "http.status": 404, "s": {"x.y": 2}})
    assert (landed.counts.quarantined, landed.new_columns) == (0, {})
    assert place.rows() == [
        {"id": 1, "http.status": 200, "status": 7, "s": {"x.y": 1}},
        {"id": 2, "http.status": 404, "status": None, "s": {"x.y": 2}},
    ]


def test_fields_that_have_one_name_are_dead_letters(tmp_path: Path) -> None:
    place = Place(tmp_path, columns={"id": "long not null"}, unknown_fields="add")
    place.land({"id": 1, "s": {"a": 1}})
    odd = [{"id": 2, "s": {"A": 5}}, {"id": 3, "s.a": 1}, {"id": 4, "s": {"b": 2}, "o": {"x": 1, "X": 2}}]
    assert place.land(*odd).counts.quarantined == 2
    assert place.table.spec.source.value.columns == {
        "id": "long not null", "s": "struct<a: long, b: long>", "o": "text",
    }  # fmt: skip
    assert place.land({"id": 5, "s": {"c": 3}}).counts.quarantined == 0


@pytest.mark.parametrize(
    ("later", "fields"),
    [
        ({"exclude": ["price"]}, {"PRICE": 1}),
        ({"exclude": ["s.a"]}, {"s": {"A": 1}}),
        ({"exclude": ["s"]}, {"s.a": 1}),
        ({"rename": {"price": "Price"}}, {"price": 1}),
        ({}, {"OP": 1}),
    ],
)
def test_field_with_the_name_of_a_column_that_only_the_landed_table_has(
    tmp_path: Path, later: dict[str, object], fields: dict[str, object]
) -> None:
    parts = {"changes": {"op": {"field": "op"}}}
    columns = {"id": "long not null", "op": "string"}
    place = Place(tmp_path, parts, columns=columns, unknown_fields="add")
    place.land({"id": 1, "op": "c", "price": 5, "s": {"a": 1}})
    place.declared = specs.spec(value={"columns": columns, "unknown_fields": "add", **later}, **parts)
    assert place.land({"id": 2, "op": "c", **fields}).counts.quarantined == 1


def with_schema(kind: str, *ids: object, **more: object) -> list[dict[str, Any]]:
    """Records whose schema says the type of their only field."""
    schema = {"type": "struct", "fields": [{"field": "id", "type": kind, **more}]}
    return [{"schema": schema, "payload": {"id": one}} for one in ids]


def decimal(precision: int, cents: int) -> list[dict[str, Any]]:
    parameters = {"scale": "2", "connect.decimal.precision": str(precision)}
    value = base64.b64encode(cents.to_bytes(4)).decode()
    return with_schema("bytes", value, name="org.apache.kafka.connect.data.Decimal", parameters=parameters)


@pytest.mark.parametrize("before", [[], decimal(3, 1)])
def test_column_that_becomes_wider_twice_in_one_batch(tmp_path: Path, before: list[dict[str, Any]]) -> None:
    """As if the log was cut between the records."""
    place = Place(tmp_path, format="connect_json", columns={}, unknown_fields="add")
    place.land(*before)
    assert place.land(*decimal(5, 2), *decimal(9, 3)).counts.landed == 2
    assert place.table.spec.source.value.columns == {"id": "decimal(9,2)"}
    assert [row["id"] for row in place.rows()][-2:] == [Decimal("0.02"), Decimal("0.03")]


@pytest.mark.parametrize(
    "policy",
    [
        {"on_bad_record": "fail"},
        {"dead_letters": {"max_records": 1}},
        {"dead_letters": {"max_share": 0.5, "share_from": 1}},
    ],
)
def test_values_that_need_the_wider_column_are_not_bad_records(tmp_path: Path, policy: dict[str, object]) -> None:
    place = Place(tmp_path, policy, format="connect_json", columns={}, unknown_fields="add")
    place.land(*with_schema("int32", 1, 2))
    wider = place.land(*with_schema("int64", 3_000_000_000, 3_000_000_001))
    assert wider.new_columns == {"id": "int to long"}
    assert [row["id"] for row in place.rows()] == [1, 2, 3_000_000_000, 3_000_000_001]


def test_fields_that_are_left_out_are_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(tmp_path)
    for _ in range(2):
        assert place.land({"id": 1, "new": 1}, {"id": 2, "new": 3}).unknown == {"new": 2}
    warnings = [text for record in caplog.records if "no column takes" in (text := record.getMessage())]
    assert len(warnings) == 1
    assert "new (2)" in warnings[0]
    assert [batch.unknown for batch in place.table.landed().batches] == [{"new": 2}] * 2


def test_fields_that_the_file_ignores_are_reported_once_it_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path, unknown_fields="ignore", columns={"id": "long not null"})
    assert place.land({"id": 1, "new": 1}).unknown == {"new": 1}
    assert "new" not in caplog.text
    place.declared = specs.spec(columns={"id": "long not null"})
    place.land({"id": 2, "new": 1})
    assert "left out: new (1) (declare them, or choose by `source.value.unknown_fields`)" in caplog.text


@pytest.mark.parametrize(("chosen", "proposed"), [(None, True), ("add", False)])
def test_the_option_is_proposed_where_the_file_lacks_it(
    chosen: str | None, proposed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With `add` a field is left out if it is in a column that the transform changes."""
    commit = SimpleNamespace(identifier="landing.p_tmp", properties={}, pipeline="p", target="main")
    value = specs.spec(value={"unknown_fields": chosen}).source.value
    assert unknown_field_properties(cast(TableCommit, commit), value, {"s.b": 1})
    assert ("`source.value.unknown_fields`" in caplog.text) is proposed
    assert "left out: s.b (1) (declare them" in caplog.text


def test_rescued_fields_are_landed_in_their_column(tmp_path: Path) -> None:
    place = Place(tmp_path, unknown_fields="rescue", columns={"id": "long not null"})
    assert place.land({"id": 1}, {"id": 2, "new": {"deep": 1.50}}).counts.landed == 2
    assert place.rows() == [{"id": 1, "_rescued": None}, {"id": 2, "_rescued": '{"new":{"deep":1.5}}'}]


def test_records_with_fields_that_fail_are_dead_letters(tmp_path: Path) -> None:
    place = Place(tmp_path, unknown_fields="fail", columns={"id": "long not null"})
    counts = place.land({"id": 1}, {"id": 2, "new": 1}).counts
    assert (counts.landed, counts.quarantined) == (1, 1)
    table = IcebergCatalog("lake", place.connection).require(place.table.identifier)
    (error,) = (row["error"] for row in table.scan().to_arrow().to_pylist() if row["error"])
    assert (error["kind"], error["message"]) == ("unknown", "no column takes the field new")


def test_schema_that_goes_back_and_forth(tmp_path: Path) -> None:
    """A field comes, goes, and comes again as before, then as another type; and is a number here, a struct there."""
    place = Place(tmp_path, columns={"id": "long not null"}, unknown_fields="add")
    batches: list[list[dict[str, Any]]] = [
        [{"id": 1, "x": 1, "s": {"a": 1}}],
        [{"id": 2}, {"id": 3, "y": "new"}],
        [{"id": 4, "x": 2, "y": 5}, {"id": 5, "x": "text"}],
        [{"id": 6, "s": 7}, {"id": 7, "s": {"a": 2, "b": True}}, {"id": 8, "x": {"now": "a struct"}}],
        [{"id": 9, "x": 3, "s": {"b": False}}],
    ]
    quarantined = [place.land(*values).counts.quarantined for values in batches]
    assert quarantined == [0, 0, 1, 2, 0]
    columns = {"id": "long not null", "s": "struct<a: long, b: boolean>", "x": "long", "y": "text"}
    assert place.table.spec.source.value.columns == columns
    rows = {row["id"]: (row["x"], row["y"], row["s"]) for row in place.rows()}
    assert rows == {
        1: (1, None, {"a": 1, "b": None}), 2: (None, None, None), 3: (None, "new", None), 4: (2, "5", None),
        7: (None, None, {"a": 2, "b": True}), 9: (3, None, {"a": None, "b": False}),
    }  # fmt: skip


def test_column_that_a_table_requires_makes_dead_letters_of_records_without_it(tmp_path: Path) -> None:
    place = Place(tmp_path, columns={"id": "long not null"}, unknown_fields="add")
    place.taking = lambda names: {"t": {name: Takes(pa.float64(), nullable=False) for name in {*names} & {"price"}}}
    assert place.land({"id": 1, "price": 5}, {"id": 2}).counts.quarantined == 1
    assert place.table.spec.source.value.columns["price"] == "double not null"
    assert place.land({"id": 3, "price": 0.5, "more": 1}, {"id": 4, "more": 2}).counts.quarantined == 1


@pytest.mark.parametrize("error", [Unavailable, ConfigurationError])
def test_table_that_refuses_to_say_its_columns_delays_no_other(error: type[BatchmergeError]) -> None:
    double = Takes(pa.float64())

    def refuses(_: object) -> Mapping[str, Takes]:
        raise error("no answer, or other credentials")

    tables = [SimpleNamespace(name="a", takes=refuses), SimpleNamespace(name="b", takes=lambda _: {"n": double})]
    pipeline = cast(Pipeline, SimpleNamespace(destinations=lambda: tables))
    assert Pipeline.taking(pipeline, ["n"]) == {"b": {"n": double}}


class Passes:
    """Stands for the passes over a batch whose transform changes the column `s`."""

    declared = specs.spec(
        columns={"id": "long", "s": "struct<a: long>"},
        value={"unknown_fields": "add"},
        source={"transform": "select * except (s), s.a as a from records"},
    )

    def __init__(self, more: int = 0, **found: int) -> None:
        fields = {tuple(name.split("__")): FoundField(pa.int64(), records) for name, records in found.items()}
        self.found = FoundFields(fields, more)
        self.refused: list[object] = []

    def write(self, _spec: object, refused: Mapping[str, str] | None, _names: object) -> Written:
        """A second pass reports none: it prunes the fields in `s`, and what is new besides is bad or has a column."""
        self.refused.append(refused)
        report = TaskReport(fields=self.found if refused is None else FoundFields())
        plain = specs.spec(columns={"id": "long"})
        append = cast(Append, SimpleNamespace(identifier="n.t"))
        return (
            BatchRecords(cast(KafkaCluster, None), plain, batch(1), pa.schema({"value": pa.struct([])})),
            append,
            LandedRanges(Counts(), report),
        )

    def land(self) -> LandedRanges:
        return write_with_new_columns(self.declared, self.write, lambda _: None)[2]


def test_fields_in_columns_that_the_transform_changes_are_counted_and_read_once() -> None:
    alone = Passes(s__new=2, s__other=1)
    landed = alone.land()
    assert (landed.report.fields.counts, landed.new_columns) == ({"s.new": 2, "s.other": 1}, {})
    assert alone.refused == [None]
    beside = Passes(s__new=2, city=1)
    landed = beside.land()
    assert (landed.report.fields.counts, landed.new_columns) == ({"s.new": 2}, {"city": "long"})
    assert beside.refused == [None, {}]


def test_fields_that_are_only_counted_may_need_a_second_pass() -> None:
    """More fields than a report names: among them may be some that become columns, or make their records bad."""
    crowded = Passes(more=1, s__new=2)
    assert crowded.land().report.fields.counts == {"s.new": 2}
    assert crowded.refused == [None, {}]


def test_plan_says_which_of_the_newest_records_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [json.dumps(one).encode() for one in ({"id": 1, "n": 1.5}, {"id": 2, "n": 2, "new": 1})]
    monkeypatch.setattr(sample, "newest_records", lambda *_: pa.table({"value": values}))
    spec = specs.spec(columns={"id": "long", "n": "long"}, value={"unknown_fields": "add"})
    found = sample.sampled_columns(spec, cast(KafkaCluster, None), ["t"], Registries(), takes_nothing)
    assert found.added == {"new": "long"}
    assert found.bad == {"column n: expected long, found a number with a fraction": 1}
    assert found.of_another_type


def test_plan_proposes_another_column_only_for_values_of_another_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "newest_records", lambda *_: pa.table({"value": [b"no JSON", b'{"id": 1}']}))
    spec = specs.spec(columns={"id": "long"}, value={"unknown_fields": "add"})
    found = sample.sampled_columns(spec, cast(KafkaCluster, None), ["t"], Registries(), takes_nothing)
    assert (len(found.bad), found.of_another_type) == (1, False)
