"""Creating and adapting a destination table, on a real SQLite catalog: what is done, only reported, or refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import Mock, patch

import pyarrow as pa
import pytest

from jobs.batch import CommittedState
from jobs.destinations.iceberg.destination import IcebergDestination
from jobs.destinations.iceberg.kept_deletes import BEGINS_WITH
from jobs.destinations.iceberg.prepare import Preparation
from jobs.destinations.iceberg.spec import IcebergTable
from jobs.iceberg.append import Append
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.history import state_properties
from jobs.iceberg.schema import arrow_schema
from jobs.schema.types import parse_columns
from jobs.verify.drift import schema_drift
from jobs.verify.stale_keys import stale_keys
from resources.errors import CommitFailed, ConfigurationError, SchemaRefused
from resources.iceberg import IcebergCatalog
from tests.kit import specs
from tests.kit.batches import batch, committed, landed_without_rows

VALUE = {"id": "long", "at": "timestamp", "op": "string", "version": "long"}


def destination(lake: IcebergCatalog, value: dict[str, str] | None = None, **table: Any) -> IcebergDestination:
    order = table.pop("order_by", None)
    changes = {"op": {"field": "op"}, "order_by": order}
    made = specs.table(mode="upsert_delete") | table
    spec = specs.spec(made, columns=value or VALUE, key=specs.ID, changes=changes)
    only = specs.entry(spec, IcebergTable)
    return IcebergDestination("p", spec, only, lake)


def test_table_is_made_with_key_layout_and_properties(lake: IcebergCatalog) -> None:
    options: dict[str, Any] = {
        "partition_by": ["day(at)"],
        "properties": {"write.parquet.compression-codec": "snappy"},
        "metadata_columns": ["partition", "batch"],
    }
    assert destination(lake, **options).prepare() == ["create iceberg n.t partitioned by day(at)"]
    table = lake.require("n.t")
    assert arrow_schema(table) == parse_columns(
        {"id": "long not null", "at": "timestamp", "version": "long", "__partition": "int", "_batch": "long"}
    )
    assert table.schema().identifier_field_names() == {"id"}
    assert [f.name for f in table.spec().fields] == ["at_day"]
    assert table.properties["write.merge.mode"] == "merge-on-read"
    assert table.properties["write.parquet.compression-codec"] == "snappy"
    assert destination(lake, **options).prepare() == [], "nothing is left to do"
    assert destination(lake, **options).committed() is None


def test_checks_of_a_table_without_dead_letters_open_no_session(lake: IcebergCatalog) -> None:
    def session() -> NoReturn:
        raise AssertionError("opened")

    made = destination(lake)
    made.prepare()
    assert schema_drift(made, session) == []
    made.read(session).known_count()
    assert stale_keys(Mock(), made, committed(1), [landed_without_rows(batch(1))], session) == 0


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "merge-on-read"),
        ({"write": "copy_on_write"}, "copy-on-write"),
        ({"mode": "append"}, "copy-on-write"),
        ({"properties": {"format-version": "1"}}, "copy-on-write"),
        ({"properties": {"write.format.default": "orc"}}, "copy-on-write"),
    ],
)
def test_keyed_tables_of_files_that_we_know_take_position_deletes(
    lake: IcebergCatalog, options: dict[str, Any], mode: str
) -> None:
    destination(lake, **options).prepare()
    assert lake.require("n.t").properties["write.merge.mode"] == mode


@pytest.mark.parametrize(
    ("options", "sorted_by"),
    [
        ({}, ["id"]),
        ({"mode": "append"}, []),
        ({"sort_by": []}, []),
        ({"mode": "append", "sort_by": ["at", "id"]}, ["at", "id"]),
    ],
)
def test_files_of_keyed_tables_are_sorted_by_key(
    lake: IcebergCatalog, options: dict[str, Any], sorted_by: list[str]
) -> None:
    destination(lake, **options).prepare()
    table = lake.require("n.t")
    assert [table.schema().find_column_name(f.source_id) for f in table.sort_order().fields] == sorted_by
    assert ("write.target-file-size-bytes" in table.properties) == (options.get("mode") != "append")


def test_dry_run_says_it_and_does_nothing(lake: IcebergCatalog) -> None:
    reported = ["create iceberg n.t", "create n.t__tombstones for the order of deletes"]
    assert destination(lake, order_by="version").prepare(dry_run=True) == reported
    assert lake.load("n.t") is None
    assert destination(lake, order_by="version").prepare() == reported
    wider = {**VALUE, "more": "date"}
    assert destination(lake, wider).prepare(dry_run=True) == ["iceberg n.t: add column more date"]
    assert "more" not in arrow_schema(lake.require("n.t")).names


@pytest.mark.parametrize(
    ("options", "renamed", "refused"),
    [
        ({}, "id", True),
        ({}, "at", False),
        ({}, "version", False),
        ({"order_by": "version"}, "version", True),
        ({"mode": "append"}, "id", False),
        ({"metadata_columns": ["topic", "partition", "offset"]}, "_offset", False),
        ({"mode": "append", "metadata_columns": ["topic", "partition", "offset"]}, "_offset", True),
        ({"mode": "append", "metadata_columns": ["topic", "partition"]}, "__partition", False),
    ],
    ids=str,
)
def test_a_column_that_recognizes_rows_is_not_made_again(
    lake: IcebergCatalog, options: dict[str, Any], renamed: str, refused: bool
) -> None:
    """Else a row stays under the column's new name, beside the one that its next change or a replay writes."""
    first = destination(lake, **options)
    first.prepare()
    meaning = first.spec.meaning_hash
    with lake.require("n.t").update_schema() as update:
        update.rename_column(renamed, "other")
    added = destination(lake, **options).prepare(dry_run=True)
    assert any(f"add column {renamed} " in change for change in added), "no batch is merged yet"
    state = replace(committed(1), meaning_hash=meaning, untraced_to=0 if first.table.has_coordinates else 1)
    Append(lake, "n.t", "p", None).publish_append(state.to_properties(), state_properties(state, "main"))
    if refused:
        with pytest.raises(SchemaRefused, match=f"lacks {renamed}, by which rows of earlier batches"):
            destination(lake, **options).prepare()
    else:
        assert destination(lake, **options).prepare() == added


@pytest.mark.parametrize(("meaning", "untraced_to"), [("another", 0), (None, 1)])
def test_a_column_that_recognizes_rows_from_now_on_is_made(
    lake: IcebergCatalog, meaning: str | None, untraced_to: int
) -> None:
    """Another key, which was accepted; coordinates, which the file asks for since."""
    options: dict[str, Any] = {} if meaning else {"mode": "append"}
    made = destination(lake, **options)
    made.prepare()
    name = "id" if meaning else "_offset"
    if meaning:
        with lake.require("n.t").update_schema() as update:
            update.rename_column("id", "other")
    state = replace(committed(1), meaning_hash=meaning or made.spec.meaning_hash, untraced_to=untraced_to)
    Append(lake, "n.t", "p", None).publish_append(state.to_properties(), state_properties(state, "main"))
    wanted = options if meaning else options | {"metadata_columns": ["topic", "partition", "offset"]}
    assert any(f"add column {name} " in change for change in destination(lake, **wanted).prepare())


def test_order_of_deletes_widens_with_its_column(lake: IcebergCatalog) -> None:
    destination(lake, {**VALUE, "version": "int"}, order_by="version").prepare()
    assert destination(lake, order_by="version").prepare() == [
        "iceberg n.t: widen version from int to long",
        "n.t__tombstones: widen __order from int to long",
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"create": False}, "does not exist and `create` is false"),
        ({"properties": {"format-version": "3"}}, "format version is 3"),
    ],
)
def test_table_that_cannot_be_is_refused_before_anything_is_made(
    lake: IcebergCatalog, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        destination(lake, order_by="version", **options).prepare()
    assert caught.value.where == "iceberg n.t"
    assert caught.value.remedy
    assert lake.load("n.t") is None
    assert lake.load("n.t__tombstones") is None


@pytest.mark.parametrize("made_by", ["prepare", "hand"])
def test_order_of_deletes_is_not_that_of_a_table_before(made_by: str, lake: IcebergCatalog) -> None:
    """A person has dropped the table, and the next run or that person has made it again."""
    found = destination(lake, order_by="version")
    found.prepare()
    assert found.kept_deletes
    before = lake.require(found.kept_deletes).metadata.table_uuid
    schema = lake.require("n.t").schema()
    lake.drop("n.t")
    if made_by == "hand":
        lake.create("n.t", schema)
    assert any("order of deletes" in line for line in found.prepare(dry_run=True))
    assert lake.require(found.kept_deletes).metadata.table_uuid == before
    assert any("order of deletes" in line for line in found.prepare())
    after = lake.require(found.kept_deletes).metadata.table_uuid
    assert after != before
    assert found.prepare() == [], "they are this table's now"
    assert lake.require(found.kept_deletes).metadata.table_uuid == after


def test_deletes_are_forgotten_once_with_another_order(lake: IcebergCatalog) -> None:
    """A run that slept takes nothing away from one that has gone on."""
    other = destination(lake, order_by="version")
    other.prepare()
    assert other.kept_deletes
    schema = arrow_schema(lake.require(other.kept_deletes))
    keep(lake, schema, 1)
    here = destination(lake, order_by="at")
    one, two = (committed(n, meaning_hash=h) for n, h in ((1, "before"), (2, here.spec.meaning_hash)))
    move(lake, None, one)

    def forget() -> None:
        Preparation(lake, here.table, here).renew_kept_deletes(one, partial(here._commit, Append, one))

    def another_run() -> None:
        forget()
        keep(lake, here.kept_deletes_schema, 2)

    with pytest.raises(CommitFailed):
        Preparation(lake, here.table, here).renew_kept_deletes(one, another_run)
    assert arrow_schema(lake.require(other.kept_deletes)) == here.kept_deletes_schema
    assert kept(lake) == [2]
    assert not lake.require("n.t__tombstones").properties[BEGINS_WITH], "nor those of main in the earlier order"
    forget()
    assert kept(lake) == [2], "both continue the state of before"
    move(lake, one, two)
    with pytest.raises(CommitFailed, match="committed state has changed"):
        forget()
    assert kept(lake) == [2]


@pytest.mark.parametrize("when", ["before it begins", "while it begins"])
def test_run_that_slept_keeps_no_deletes_after_a_renewal(
    when: str, lake: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no delete was kept before, so that the renewal moves no branch."""
    asleep, here = destination(lake, order_by="version"), destination(lake, order_by="at")
    asleep.prepare()
    one, make_target = committed(1, meaning_hash="before"), Attempt._make_target
    move(lake, None, one)
    noted = Preparation(lake, asleep.table, asleep).note_kept_deletes(one)
    assert noted

    def renew() -> None:
        Preparation(lake, here.table, here).renew_kept_deletes(one, lambda: None)

    def make_target_late(attempt: Attempt) -> None:
        renew()
        make_target(attempt)

    if when == "while it begins":
        monkeypatch.setattr(Attempt, "_make_target", make_target_late)
    else:
        renew()
    with pytest.raises(CommitFailed, match="another order of changes"):
        noted.begin()
    assert [name for name in lake.require(noted.identifier).metadata.refs if name != "main"] == []


def keep(lake: IcebergCatalog, schema: pa.Schema, key: int) -> None:
    """A delete, as merges keep it."""
    row = [pa.array([key if name == "id" else 7]).cast(schema.field(name).type) for name in schema.names]
    lake.require("n.t__tombstones").append(pa.table(row, schema=schema))


def kept(lake: IcebergCatalog) -> list[int]:
    """The keys of deletes."""
    found: list[int] = lake.require("n.t__tombstones").scan().to_arrow()["id"].to_pylist()
    return found


def move(lake: IcebergCatalog, before: CommittedState | None, after: CommittedState) -> None:
    """What a merge without a row does."""
    Append(lake, "n.t", "p", before).publish_append(after.to_properties(), state_properties(after, "main"))


def test_each_branch_has_an_order_of_deletes_of_its_own(lake: IcebergCatalog) -> None:
    """Deletes on one of them hide no rows on the other."""
    names = [destination(lake, order_by="version", branch=b).kept_deletes for b in ("main", "staging", "a/b", "a.b")]
    assert names == ["n.t__tombstones", *(f"n.t__tombstones__{b}" for b in ("staging", "a_2fb", "a_2eb"))]


def test_a_branch_that_begins_with_the_rows_of_main_begins_with_its_order_of_deletes(lake: IcebergCatalog) -> None:
    """Else a late change that is older than a delete on main brings the row back on the branch."""
    main, audit = (destination(lake, order_by="version", branch=branch) for branch in ("main", "audit"))
    main.prepare()
    move(lake, None, state := committed(1, meaning_hash=main.spec.meaning_hash))
    assert audit.committed() == state
    audit.prepare()
    found = Preparation(lake, audit.table, audit).note_kept_deletes(state)
    assert found
    assert found.noted.properties[BEGINS_WITH] == main.kept_deletes
    schema, read = arrow_schema(found.noted), list[str]()
    keep(lake, schema, 1)

    def copies(rows: Mock, path: tuple[str, ...], _summary: object) -> None:
        read.append(str(rows))
        assert path[-1].startswith("branch_")

    context = Mock()
    context.spark.table = lambda name: SimpleNamespace(select=lambda *columns: (name, columns))
    with patch("jobs.iceberg.spark_writes.append", copies):
        found.begin_with_those_of_main(context)
        again = Preparation(lake, audit.table, audit).note_kept_deletes(state)
        assert again
        again.begin_with_those_of_main(context)
    assert read == [str(("`lake`.`n`.`t__tombstones`", ("`id`", "`__order`")))], "once"


@pytest.mark.parametrize("why", ["no state", "another table", "the branch has a state", "another order"])
def test_a_branch_that_does_not_begin_with_main_begins_without_deletes(lake: IcebergCatalog, why: str) -> None:
    main, audit = (destination(lake, order_by="version", branch=branch) for branch in ("main", "audit"))
    main.prepare()
    if why == "another table":
        lake.drop("n.t")
        destination(lake).prepare()
    if why != "no state":
        meaning, order = ("before", "other") if why == "another order" else (main.spec.meaning_hash, "")
        move(lake, None, replace(committed(1, meaning_hash=meaning), order=order))
    if why == "the branch has a state":
        two = committed(2, meaning_hash=main.spec.meaning_hash)
        known = committed(1)
        Append(lake, "n.t", "p", known, "audit").publish_append(two.to_properties(), state_properties(two, "audit"))
    audit.prepare()
    assert audit.kept_deletes
    assert BEGINS_WITH not in lake.require(audit.kept_deletes).properties


def test_tables_of_one_name_on_two_connections_have_names_of_their_own(lake: IcebergCatalog) -> None:
    """By the name a table has its Spark session, its transactions and its place among the tables of a pipeline."""
    names = [destination(lake, connection=connection).name for connection in ("lake", "lake2")]
    assert names == ["iceberg n.t", "iceberg n.t on lake2"]


def test_drop_takes_the_order_of_deletes_along(lake: IcebergCatalog) -> None:
    """Else a table that is made again would lack rows that were deleted before."""
    found = destination(lake, order_by="version")
    assert found.drop() is False
    found.prepare()
    assert found.kept_deletes is not None
    with pytest.raises(ConfigurationError, match="carries its committed state itself"):
        found.drop_state()
    assert found.drop() is True
    assert (lake.load("n.t"), lake.load(found.kept_deletes)) == (None, None)
    assert found.drop_state() is False
