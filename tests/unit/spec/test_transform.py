"""Transforms: what a statement gives, and what is refused when the pipeline file is loaded."""

from __future__ import annotations

import pyarrow as pa
import pytest

from jobs.spec.transform import Cast, Conversion, Resolved, Transform
from jobs.spec.transform_statement import resolve
from resources.errors import ConfigurationError

VALUE = {
    "id": "long not null", "name": "string", "a": "struct<b: int, `c d`: string>", "tags": "array<string>",
    "price": "decimal(10,2)", "at": "timestamp", "local": "timestamp_ntz",
}  # fmt: skip


def resolved(sql: str, **columns: str) -> Resolved:
    return resolve(Transform(sql=sql, columns=columns), VALUE, {"id": "long"})


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("select id from records", {"id": "long not null"}),
        ("SELECT ID, Name as orderName, A.b FROM Records", {"id": "long not null", "orderName": "string", "b": "int"}),
        ("select * except (a, tags, name) from records",
         {"id": "long not null", "price": "decimal(10,2)", "at": "timestamp", "local": "timestamp_ntz"}),
        ("select a.* from records", {"b": "int", "c d": "string"}),
        ("select ID, A.* except (`C D`) from records", {"id": "long not null", "b": "int"}),
        ("select RECORDS.* except (A, Tags, name, price, at) from records",
         {"id": "long not null", "local": "timestamp_ntz"}),
        ("select _key.*, name from records", {"id": "long", "name": "string"}),
        ("select id -- the key\nfrom /* all */ `Records` -- note", {"id": "long not null"}),
        ("select a.`c d` as x, tags[0] as t from records", {"x": "string", "t": "string"}),
        ("select cast(name as decimal(5,1)) as d, try_cast(name as timestamp) as t from records",
         {"d": "decimal(5,1)", "t": "timestamp"}),
        ("select _topic, _offset, _key.id as k from records where _partition = 0",
         {"_topic": "string", "_offset": "long", "k": "long"}),
        ("select id > 5 as big, case when id > 1 then 'x' end as c from records", {"big": "boolean", "c": "string"}),
        ("select id, case when id < 0 then 'no' end as _refused from records", {"id": "long not null"}),
        ("select cast('today' as string) as t, cast(aes_encrypt(name, 'key', mode => 'ECB') as binary) as e "
         "from records", {"t": "string", "e": "binary"}),
        ("select 3000000000 as l, id + 1 as m, id / 2 as d, coalesce(a.b, 0) as i from records",
         {"l": "long", "m": "long", "d": "double", "i": "int"}),
    ],
)  # fmt: skip
def test_columns_follow_from_the_statement(sql: str, columns: dict[str, str]) -> None:
    assert dict(resolved(sql).columns) == columns


def test_columns_keep_their_form() -> None:
    value = {"id": "uuid not null", "at": "time", "of": "struct<code: fixed(2)>", "note": "text"}
    found = resolve(Transform(sql="select id as ref, *, upper(id) as big, of.code from records"), value, None)
    assert dict(found.columns) == {
        "ref": "uuid not null", "id": "uuid not null", "at": "time", "of": "struct<code: fixed(2)>", "note": "string",
        "big": "string", "code": "binary",
    }  # fmt: skip


def test_declared_types_and_the_condition() -> None:
    found = resolved("select price * 2 as double_price from records where id > 5", double_price="decimal(12,2)")
    assert dict(found.columns) == {"double_price": "decimal(12,2)"}
    assert found.condition == "id > 5"
    assert found.expressions == {"double_price": "price * 2"}
    assert found.reads == {"price", "id"}


@pytest.mark.parametrize(
    "text",
    [
        "to_char(price, '000.00')",
        "get_json_object(name, '$.a:b')",
        "get_json_object(name, '$.a.*')",
        "log10(id)",
        "A.`c d` /* , */ || 'ü, from records where'",
        "extract(seconds from at)",
        r"regexp_replace(name, r'\d', '')",
        "name is distinct from 'x'",
        "transform(tags, t -> upper(t))",
    ],
)
def test_spark_gets_the_text_as_it_is_written(text: str) -> None:
    sql = f"select {text} as r, * except (price), {text} r2 -- a comment\nfrom records where {text} is not null;"
    found = resolved(sql, r="string", r2="string")
    assert (found.expressions["r"], found.expressions["r2"]) == (text, text)
    assert found.expressions["id"] == "`records`.`id`"
    assert found.condition == f"{text} is not null"


INT, DATE, INSTANT = Cast(pa.int32()), Cast(pa.date32()), pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("text", "given", "casts"),
    [
        ("cast(name as int)", "name", [INT]),
        ("CAST( trim(NAME) AS decimal(5, 1) ) -- a price\n", "trim(NAME)", [Cast(pa.decimal128(5, 1))]),
        ("cast(cast(name as double) as int)", "name", [Cast(pa.float64()), INT]),
        ("cast(struct(name as a).a as int)", "struct(name as a).a", [INT]),
        ("to_timestamp(name, 'dd.MM.yyyy, HH')", "name", [Cast(INSTANT, "'dd.MM.yyyy, HH'")]),
        ("to_timestamp(a.`c d`)", "a.`c d`", [Cast(INSTANT)]),
        ("to_date(name, 'dd.MM.yyyy')", "name", [Cast(INSTANT, "'dd.MM.yyyy'"), DATE]),
        ("to_date(name)", "name", [DATE]),
        ("cast(id as int)", "id", [INT]),
    ],
)
def test_a_conversion_is_known_by_its_input_and_its_casts(text: str, given: str, casts: list[Cast]) -> None:
    assert resolved(f"select {text} as r from records").conversions == {"r": Conversion(given, tuple(casts))}


@pytest.mark.parametrize("name", ["desc", "update", "use", "delete", "merge", "copy", "kill", "cache", "pragma"])
def test_a_column_may_have_the_name_of_a_statement(name: str) -> None:
    sql = f"select {name}, cast({name} as int) as a, {name} as b from records where {name} > '1'"
    found = resolve(Transform(sql=sql), {name: "string"}, None)
    assert dict(found.columns) == {name: "string", "a": "int", "b": "string"}
    assert found.conversions == {"a": Conversion(name, (INT,))}


def test_the_cast_to_a_declared_type_is_a_conversion() -> None:
    assert resolved("select name from records", name="int").conversions == {"name": Conversion("name", (INT,))}
    both = resolved("select cast(name as double) as r from records", r="int").conversions
    assert both == {"r": Conversion("name", (Cast(pa.float64()), INT))}


@pytest.mark.parametrize(
    "text",
    ["try_cast(name as int)", "cast('x' as int)", "cast(id as string)", "cast(tags as array<int>)", "name",
     "to_date(name, name)", "cast(cast(name as double) as decimal(5,1))", "cast(name as int) + 1", "coalesce(name, )",
     "coalesce(cast(name as int), 1)"],
)  # fmt: skip
def test_what_may_be_null_or_cannot_fail_is_evaluated_as_it_is(text: str) -> None:
    assert resolved(f"select {text} as r from records").conversions == {}


@pytest.mark.parametrize(
    "text",
    ["to_char(price, '000.00')", "log10(id)", "round(price, 1)", "round(id)", "extract(seconds from at)",
     "timestampdiff(SECOND, at, at)", "datediff(SECOND, at, at)", "price * 2", "9223372036854775808", "1.5",
     "if(id > 1, 1, price)", "substring(cast(name as binary), 1, 2)", "cast(null as struct<aB: int>)"],
)  # fmt: skip
def test_a_type_that_is_not_certain_is_declared(text: str) -> None:
    with pytest.raises(ConfigurationError, match="the type of r does not follow"):
        resolved(f"select {text} as r from records")
    assert resolved(f"select {text} as r from records", r="string").columns == {"r": "string"}


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("select nope from records", "nope is not a column of records"),
        ("select id from other", "from `records` alone"),
        ("select id", "from `records` alone"),
        ("select id from records join records as b on true", "a join"),
        ("select r.id from records as r", "from `records` alone"),
        ("select id from (select 1 as id) as records", "from `records` alone"),
        ("select id, (select 1) as x from records", "a subquery"),
        ("select id from records union all select id from records", "one `select`"),
        ("select id from records; select id from records", "one `select`"),
        ("drop table records", "one `select`"),
        ("selec id", ""),
        ("select count(*) as n from records", "an aggregate"),
        ("select row_number() over (order by id) as n from records", "is not allowed"),
        ("select id from records limit 5", "`limit`"),
        ("select id from records order by id", "`order by`"),
        ("select distinct id from records", "`distinct`"),
        ("select id from records group by id", "`group by`"),
        ("select explode(tags) as t from records", "several rows"),
        ("select window(at, '1 hour').start as w from records", "window() is not allowed"),
        ("select id from records where `Session_Window`(at, '1 hour').start is not null", "session_window() is not"),
        ("select window_time(system.builtin.window(at, '1 hour')) as w from records", "is not allowed"),
        ("select now() as n from records", "now"),
        ("select current_timestamp() as n from records", "time of the run"),
        ("select rand() as n from records", "is not allowed"),
        ("select uuid() as n from records", "is not allowed"),
        ("select localtimestamp() as n from records", "time of the run"),
        ("select aes_encrypt(name, 'key') as n from records", "aes_encrypt() needs an initialization vector"),
        ("select timestamp 'Now' as n from records", "'Now' is not allowed"),
        ("select to_date('today') as n from records", "'today' is not allowed"),
        ("select id from records where at > date'yesterday '", "'yesterday ' is not allowed"),
        ("select id from records where randstr(3, 0) = 'abc'", "randstr() is not allowed"),
        ("select unix_timestamp() as n from records", "time of the run"),
        ("select id from records sort by id", "is not allowed"),
        ("select id as a, name as a from records", "the name a"),
        ("select price * 2 as p from records", "the type of p does not follow"),
        ("select from_json(name, 'a int') as p from records", "the type of p does not follow"),
        ("select * except (nope) from records", "nope, which is no column"),
        ("select a.* except (nope) from records", "nope, which is no column"),
        ("select nope.* from records", "nope is no struct"),
        ("select name.* from records", "name is no struct"),
        ("select id from x.records -- note", "from `records` alone"),
        ("select id from records() -- note", "from `records` alone"),
    ],
)
def test_what_is_refused(sql: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        resolved(sql)
    assert says in str(refused.value)
    assert refused.value.remedy


def test_types_of_columns_that_the_statement_does_not_give() -> None:
    with pytest.raises(ConfigurationError, match="names y, which the statement does not give"):
        resolved("select id from records", y="int")


ARANGO = {"_key": "string", "_rev": "string", "n": "long"}


@pytest.mark.parametrize(
    ("value", "sql", "columns"),
    [
        (ARANGO, "select *, 1 as one from records", {**ARANGO, "one": "int"}),
        ({"_timestamp": "long", "n": "long"}, "select n from records", {"n": "long"}),
        ({"_Topic": "string", "n": "long"}, "select * except (_Topic) from records", {"n": "long"}),
        ({"_refused": "string", "n": "long"}, "select n from records", {"n": "long"}),
        ({"s": "int", "S": "int", "n": "long"}, "select n from records", {"n": "long"}),
    ],
)
def test_columns_that_spark_cannot_distinguish_may_be_there(
    value: dict[str, str], sql: str, columns: dict[str, str]
) -> None:
    assert resolve(Transform(sql=sql), value, None).columns == columns


@pytest.mark.parametrize(
    ("value", "sql", "says"),
    [
        (
            {"_timestamp": "long"},
            "select _Timestamp + 1 as t from records",
            "_timestamp is a column that `records` has",
        ),
        ({"_Topic": "string", "n": "long"}, "select n from records where _topic > ''", "_Topic is a column that"),
        ({"_headers": "string"}, "select * from records", "_headers is a column that `records` has"),
        ({"_refused": "string"}, "select * from records", "_refused is a column that `records` has"),
        ({"s": "int", "S": "int"}, "select S from records", "s and S are one name to Spark"),
        ({"s": "int", "S": "int", "n": "long"}, "select * except (s) from records", "s and S are one name to Spark"),
        ({"__usable": "int", "n": "long"}, "select n from records", "__usable is a column that `records` has"),
        ({"__raw_key": "int", "n": "long"}, "select n from records", "__raw_key is a column that `records` has"),
    ],
)
def test_columns_that_spark_cannot_distinguish_are_not_read(value: dict[str, str], sql: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        resolve(Transform(sql=sql), value, None)


def test_key_is_a_column_of_records_where_it_is_decoded() -> None:
    with pytest.raises(ConfigurationError, match="_key is a column that `records` has"):
        resolve(Transform(sql="select n from records"), ARANGO, {"id": "long"})
