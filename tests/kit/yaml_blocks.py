"""YAML blocks of the docs, each read by the model that it is written for.

What a block is, its top-level keys say: a whole pipeline file; parts of its `attributes`, which are put into a pipeline
that is as small as can be; a connections file; a recipe of `docs/transforms.md`, which `test_recipes.py` runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.connections_file import load_connections
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.source import Source
from tests.kit import specs
from tests.kit.guides import Block


class _NoKeyTwice(yaml.SafeLoader):
    """YAML lets a later key replace an earlier one of the same name, which no reader would see."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {keys}"
        return super().construct_mapping(node, deep)


def read(block: Block) -> Any:
    return yaml.load(block.text, _NoKeyTwice)


def kind_of(block: Block) -> str:
    """`file`, `part` (of attributes), `connections`, `recipe`; empty where the block is something else."""
    document = read(block)
    if not isinstance(document, dict):
        return ""
    keys = set(document)
    if "attributes" in keys:
        return "file"
    if keys == {"connections"}:
        return "connections"
    if keys == {"columns", "transform"}:
        return "recipe"
    return "part" if keys <= set(PipelineSpec.model_fields) else ""


def check(block: Block, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Raises where the block's model refuses it, or no model is known for it."""
    document = read(block)
    match kind_of(block):
        case "file":
            assert set(document) == {"type", "attributes"}
            assert document["type"] == "batchmerge.KafkaPipeline"
            PipelineSpec.model_validate(document["attributes"])
        case "part":
            PipelineSpec.model_validate(_merged(specs.document(), document))
        case "connections":
            _check_connections(block.text, monkeypatch, folder)
        case "recipe":
            source = {"topics": ["t"], "key": {"columns": {"id": "long"}}, "value": {"columns": document["columns"]}}
            assert Source.model_validate({**source, "transform": document["transform"]}).resolved
        case _:
            raise AssertionError(f"{block}: no model is known for {sorted(document)}")


def _check_connections(text: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for name in re.findall(r"\$\{env:(\w+)\}", text):
        monkeypatch.setenv(name, "x")
    (folder / "secret").write_text("x")
    text = re.sub(r"\$\{file:[^}]+\}", f"${{file:{folder / 'secret'}}}", text)
    (folder / "connections.yaml").write_text(text)
    assert load_connections(folder / "connections.yaml").names() == sorted(yaml.safe_load(text)["connections"])


def _merged(base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """The base with what the part says in its place; lists are replaced, and so are columns and start of topics."""
    merged = dict(base)
    for name, value in part.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict) and name in ("source", "changes")
        merged[name] = _merged(merged[name], value) if both else value
    if "pattern" in merged:
        merged.pop("topics", None)
    return merged
