"""The format of `docs/write-a-format.md` works as the page says, as the format of a package of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType

import pytest
import yaml

import jobs.entry_points
from jobs.changes.columns import landing_schema
from jobs.decode.foreign import GROUP, foreign_formats
from jobs.landing.readers import record_reader
from jobs.spec.pipeline import PipelineSpec
from resources.errors import ConfigurationError
from tests.kit import specs
from tests.kit.arrow import kafka_records
from tests.kit.batches import batch
from tests.kit.guides import DOCS, blocks


def block_of(title: str, language: str) -> str:
    (found,) = [block for block in blocks(DOCS / "write-a-format.md", title) if block.language == language]
    return found.text


@pytest.fixture
def csv(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example's package is installed, and one whose decoder cannot be made."""
    module = ModuleType("batchmerge_csv")
    exec(compile(block_of("An example", "python"), "write-a-format.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    points = [
        EntryPoint("csv", "batchmerge_csv:CommaSeparated", GROUP),
        EntryPoint("broken", "batchmerge_csv:type_name", GROUP),
        EntryPoint("absent", "no.such.module:DECODER", GROUP),
    ]
    monkeypatch.setattr(jobs.entry_points, "entry_points", lambda group: EntryPoints(points if group == GROUP else []))
    foreign_formats.cache_clear()
    yield
    foreign_formats.cache_clear()


@pytest.mark.usefixtures("csv")
def test_the_example_decodes_and_refuses() -> None:
    spec = PipelineSpec.model_validate(yaml.safe_load(block_of("A package of your own", "yaml")))
    records = [b'1;"a; b"', b"2;", None, b";x", b"x;y", b"1;2;3", b"\xff;1"]
    landed = record_reader(spec, batch(1), landing_schema(spec)).read(kafka_records(*((None, r) for r in records)))
    assert landed.column("value").to_pylist() == [{"id": 1, "name": "a; b"}, {"id": 2, "name": None}, *[None] * 5]
    errors = [error and error["kind"] for error in landed.column("error").to_pylist()]
    assert errors == [None, None, None, "missing", "type", "type", "undecodable"]


@pytest.mark.usefixtures("csv")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken", "format 'broken' of an unnamed package: batchmerge_csv:type_name makes no decoder: TypeError"),
        ("absent", "format 'absent' of an unnamed package: no.such.module:DECODER cannot be loaded: ModuleNotFound"),
    ],
)
def test_a_package_that_does_not_fit_is_named(name: str, says: str) -> None:
    spec = specs.spec(value={"format": name})
    with pytest.raises(ConfigurationError) as refused:
        record_reader(spec, batch(1), landing_schema(spec))
    assert says in str(refused.value)
