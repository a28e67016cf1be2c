"""Every recipe of docs/transforms.md gives what stands beside it, on a real Spark."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from jobs.decode.decoders import decoder_for
from jobs.landing.topic_decoder import TopicDecoder
from jobs.landing.transform import DecodeStep, evaluated
from jobs.spec.source import Source
from resources.kafka_records import HEADERS
from tests.kit.arrow import row_type

_TEXT = (Path(__file__).parents[2] / "docs" / "transforms.md").read_text()
_RECIPE = re.compile(r"^## (.+?)\n(?:(?!^## ).)*?```yaml\n(.*?)```\n```json\n(.*?)```", re.MULTILINE | re.DOTALL)
RECIPES = [(name, yaml.safe_load(part), json.loads(example)) for name, part, example in _RECIPE.findall(_TEXT)]


def test_every_transform_and_predicate_of_kafka_connect_is_there() -> None:
    known = ["Cast", "DropHeaders", "ExtractField", "Filter", "Flatten", "HeaderFrom", "HoistField", "InsertField",
             "InsertHeader", "MaskField", "RegexRouter", "ReplaceField", "SetSchemaMetadata", "TimestampConverter",
             "TimestampRouter", "ValueToKey", "HasHeaderKey", "RecordIsTombstone", "TopicNameMatches"]  # fmt: skip
    without = {"DropHeaders", "InsertHeader", "SetSchemaMetadata"}
    assert {name for name, _, _ in RECIPES} >= set(known) - without
    assert all(name in _TEXT.split("## Without a recipe")[1] for name in without)
    assert len(RECIPES) == _TEXT.count("```yaml")


@pytest.mark.parametrize(("name", "recipe", "example"), RECIPES, ids=[name for name, _, _ in RECIPES])
def test_recipe(spark: SparkSession, name: str, recipe: dict[str, Any], example: dict[str, Any]) -> None:
    assert name
    key = {"columns": {"id": "long"}}
    source = Source.model_validate(
        {"topics": ["t"], "key": key, "value": {"columns": recipe["columns"]}, "transform": recipe["transform"]}
    )
    resolved = source.resolved
    assert resolved is not None
    kind = row_type(recipe["columns"])
    key_kind = pa.struct([("id", pa.int64())])
    of_key, of_value = (TopicDecoder(decoder_for("json", one)) for one in (key_kind, kind))
    step = DecodeStep(of_key, of_value, headers="headers")
    value = example["value"]
    given = example.get("headers", {})
    headers = [{"key": name, "value": text.encode()} for name, text in (given or {}).items()]
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([json.dumps(example.get("key", {"id": 1})).encode()], pa.binary()),
            "value": pa.array([None if value is None else json.dumps(value).encode()], pa.binary()),
            "topic": pa.array(["t"]),
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([7], pa.int64()),
            "timestamp": pa.array([datetime(2026, 1, 1, 12, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "headers": pa.array([None if given is None else headers], HEADERS),
        }
    )
    decoded = spark.createDataFrame(pa.Table.from_batches([step.read(batch)]))
    (row,) = evaluated(decoded, resolved, has_key=True).select("result").toArrow().to_pylist()
    assert plain(row["result"]) == example["out"]


def plain(found: Any) -> Any:
    """As JSON would have it: times as text, maps as objects."""
    if isinstance(found, datetime):
        return f"{found:%Y-%m-%d %H:%M:%S}"
    if isinstance(found, list) and all(isinstance(one, tuple) for one in found):
        return dict(found)
    return {name: plain(value) for name, value in found.items()} if isinstance(found, dict) else found
