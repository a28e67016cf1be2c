"""The insert of a chunk: fenced, quoted, converted, and told apart by coordinates where it is done again."""

from __future__ import annotations

import pyarrow as pa

from jobs.destinations.clickhouse.columns import table_column
from jobs.destinations.clickhouse.insertion import Only
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.clickhouse.statements import Statements
from jobs.destinations.clickhouse.tables import Layout
from jobs.spec.columns import RowColumn

ROW = [
    RowColumn("id", pa.int64(), False, ("key", "id"), is_key=True),
    RowColumn("odd `name`", pa.string(), True, ("value", "odd `name`")),
    RowColumn("n", pa.int64(), True, ("value", "n")),
]


def _statements(mode: str, shards: int = 1, ordered: bool = False) -> Statements:
    table = ClickHouseTable.model_validate(
        {"kind": "clickhouse", "table": "air.flights", "mode": mode, "column_types": {"n": "UInt8"}}
    )
    columns = tuple(table_column(c, table.column_types) for c in ROW)
    return Statements(Layout(table, columns, ordered, 1000, None), ("default", "state"), shards)


def _words(text: str) -> str:
    return " ".join(text.split())


def test_insert_is_fenced_and_quoted() -> None:
    text = _words(_statements("append").insert())
    assert text.startswith("INSERT INTO `air`.`flights` ( `id`, `odd \\`name\\``, `n` ) SELECT")
    assert "ifNull((SELECT `owner` FROM `default`.`state` WHERE `name` = {lease:String}), '') != {owner:String}" in text
    assert "accurateCast(`n`, 'UInt8')" in text
    assert "NOT IN" not in text
    assert "{shards:UInt32}" not in text
    assert text.endswith("FORMAT Arrow")


def test_only_missing_rows_of_the_chunk() -> None:
    text = _words(_statements("append").insert(Only.RECORD))
    assert (
        "(`_topic`, `_partition`, `_offset`) NOT IN ( SELECT `_topic`, `_partition`, `_offset` FROM `air`.`flights`"
        in text
    )
    assert "`_offset` BETWEEN {first:Int64} AND {last:Int64}" in text


def test_rows_say_which_topic_and_step_they_are_from() -> None:
    one_id = "transform(`_topic`, {topics:Array(String)}, {topic_ids:Array(String)}, '')"
    text = _words(_statements("append").insert(Only.STEP, origin=True))
    assert "`n`, `_topic_id`, `_step` ) SELECT" in text
    assert f"accurateCast(`n`, 'UInt8'), {one_id}, {{step:UInt64}} FROM input(" in text
    assert f"`_topic_id` IN ('', {one_id}) AND `_step` = {{step:UInt64}} AND `_topic` IN" in text
    assert "`_step` =" not in _words(_statements("append").insert(Only.RECORD, origin=True))


def test_deletes_are_versions_whose_other_columns_are_not_converted() -> None:
    text = _words(_statements("upsert_delete").insert())
    assert "`_version`, `_deleted` ) SELECT" in text
    assert "if(`__deleted` = 1, defaultValueOfTypeName('UInt8'), accurateCast(`n`, 'UInt8'))" in text
    assert "bitOr(bitShiftLeft(toUInt64(`__batch`), 32), toUInt64(`__i`))" in text


def test_named_order_comes_before_the_batch() -> None:
    statements = _statements("upsert", ordered=True)
    assert "toUInt128(bitXor(reinterpretAsUInt64(`__order`)" in _words(statements.insert())
    assert statements.wire["__order"] == "Int64"
    assert "__deleted" not in statements.wire


def test_rows_of_a_shard() -> None:
    assert "AND sipHash64(`id`) % {shards:UInt32} = {shard:UInt32}" in _words(_statements("upsert", 3).insert())
