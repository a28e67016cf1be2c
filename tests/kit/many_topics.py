"""A pipeline of many topics (`for_each`), each with a table in Iceberg and one in ClickHouse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit import specs

MANY = 200


def topics(count: int, pipeline: str = "many") -> list[str]:
    return [f"{pipeline}.public.t{number}" for number in range(count)]


def document(
    pipeline: str = "many", kinds: tuple[str, ...] = ("iceberg", "clickhouse"), **parts: Any
) -> dict[str, object]:
    pattern = rf"{pipeline}\.public\.(?P<table>.+)"
    return specs.document(
        *(specs.table(kind, "upsert", f"{pipeline}.{{table}}") for kind in kinds),
        columns={"id": "long", "name": "string", "at": "timestamp"},
        key="id",
        source={"topics": [], "pattern": pattern, "for_each": "topic"},
        **{"control": {"enabled": False}, **parts},
    )


def write_pipeline(folder: Path, name: str, kinds: tuple[str, ...] = ("iceberg", "clickhouse")) -> None:
    """Its file in a folder of pipeline files."""
    specs.write(folder, name, document(name, kinds))
