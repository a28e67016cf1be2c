"""A pipeline of many topics (`for_each`), each with a table in Iceberg and one in ClickHouse."""

from __future__ import annotations

from pathlib import Path

import yaml

MANY = 200


def topics(count: int, pipeline: str = "many") -> list[str]:
    return [f"{pipeline}.public.t{number}" for number in range(count)]


def document(pipeline: str = "many", kinds: tuple[str, ...] = ("iceberg", "clickhouse")) -> dict[str, object]:
    return {
        "source": {
            "pattern": rf"{pipeline}\.public\.(?P<table>.+)",
            "for_each": "topic",
            "value": {"format": "json", "columns": {"id": "long", "name": "string", "at": "timestamp"}},
        },
        "changes": {"key": {"columns": ["id"], "source": "value"}, "order_by": "arrival"},
        "tables": [{"kind": kind, "table": f"{pipeline}.{{table}}", "mode": "upsert"} for kind in kinds],
        "control": {"enabled": False},
    }


def write_pipeline(folder: Path, name: str, kinds: tuple[str, ...] = ("iceberg", "clickhouse")) -> None:
    """Its file in a folder of pipeline files."""
    path = folder / name / "defs.yaml"
    path.parent.mkdir(parents=True)
    attributes = document(name, kinds)
    path.write_text(yaml.safe_dump({"type": "batchmerge.KafkaPipeline", "attributes": attributes}))
