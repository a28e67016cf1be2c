"""The types that follow from a transform's statement are those that a real Spark gives its expressions."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from jobs.schema.types import parse_columns
from jobs.spec.transform import METADATA, Transform
from jobs.spec.transform_statement import resolve
from tests.kit.arrow import row_type

VALUE = {
    "i": "int", "l": "long", "d": "double", "m": "decimal(10,2)", "s": "string", "t": "timestamp", "n": "timestamp_ntz",
    "dt": "date", "b": "boolean", "a": "array<int>", "mp": "map<string,long>", "st": "struct<x: int, y: string>",
}  # fmt: skip
CERTAIN = """
upper(s) | lower(s) | ucase(s) | initcap(s) | trim(s) | ltrim(s) | repeat(s, 2) | replace(s, 'a') | md5(s)
sha2(s, 256) | substring(s, 1, 2) | substr(s, 1) | left(s, 1) | right(s, 1) | concat(s, 'x') | s || 'x'
concat_ws('-', s, i) | split(s, ',') | regexp_replace(s, 'a', 'b') | regexp_extract(s, 'a', 0)
translate(s, 'a', 'b') | date_format(t, 'yyyy') | unix_seconds(t) | unix_millis(t) | unix_micros(t)
unix_millis(t) * 1000 | year(t) | month(dt) | day(t) | hour(t) | minute(t) | length(s) | char_length(s) | to_date(s)
to_date(s, 'yyyy') | to_timestamp(s) | to_timestamp(s, 'yyyy') | cast(s as int) | try_cast(s as decimal(5,1))
s::timestamp | int(s) | double(i) | date(t) | string(i) | 5L | 1.5D | cast(a as array<long>) | date '2020-01-01'
timestamp '2020-01-01' | 'x' | r'x' | true | 1 | -1 | 2147483647 | 2147483648 | 3000000000 | i + 1 | i + l | l - 1
i * d | d + l | i % 2 | l % i | mod(l, 2) | i / 2 | l / i | i div 2 | l div i | -l | s rlike 'a' | s like 'a'
s is null | i in (1, 2) | i between 1 and 2 | i <=> 1 | not b | b and true | i != 1 | exists(a, x -> x > 1)
array_contains(a, 1) | startswith(s, 'a') | s is distinct from 'x' | case when b then s end
case i when 1 then i else l end | if(b, 1, 3000000000) | if(b, m, null) | coalesce(i, 0) | coalesce(l, i, d)
nvl(s, '') | greatest(i, l) | least(s, 'x') | a[0] | mp['k'] | st.x | element_at(a, 1) | _headers[0].key
filter(a, x -> x is not null) | sort_array(a) | array_distinct(a) | size(a) | abs(i) | abs(d) | nullif(i, 0)
named_struct('x', i, 'y', s) | struct(i, s) | struct(i as q) | if(b, t, _timestamp) | (i) | split(s, ',')[0]
nullif(s, '')
"""


def test_types_that_are_certain_are_sparks(spark: SparkSession) -> None:
    fields = [*row_type(VALUE), *(pa.field(name, kind) for name, kind in METADATA.items())]
    nothing = spark.createDataFrame([], from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True))
    texts = [text.strip() for line in CERTAIN.strip().splitlines() for text in line.split(" | ")]
    sql = f"select {', '.join(f'{text} as r{n}' for n, text in enumerate(texts))} from records"
    ours = parse_columns(resolve(Transform(sql=sql), VALUE, None).columns)
    sparks = nothing.selectExpr(*(f"{text} as r{n}" for n, text in enumerate(texts))).schema
    found = {
        text: (plain(from_arrow_type(field.type, prefer_timestamp_ntz=True).json()), plain(spark_field.dataType.json()))
        for text, field, spark_field in zip(texts, ours, sparks, strict=True)
    }
    assert {text: pair for text, pair in found.items() if pair[0] != pair[1]} == {}


def plain(kind: str) -> str:
    """Whether a part is ever null is not compared."""
    return kind.replace("false", "true")
