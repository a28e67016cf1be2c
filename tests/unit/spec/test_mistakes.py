"""Mistakes in a pipeline file: all of them at once, word by word, each with its line and column."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.spec.pipeline import PipelineSpec
from jobs.spec.pipeline_file import read_pipeline_file
from resources.config_files.mistakes import WrongFile, closest, shown_path
from resources.config_files.models import examine
from resources.connections import Connections, IcebergConnection, KafkaConnection, SparkConnection
from resources.errors import ConfigurationError
from tests.kit.specs import RIGHT, TAKEN_OUT, changed, mistakes

CASES = yaml.safe_load((Path(__file__).parent / "mistakes.yaml").read_text())
FILE = """\
type: batchmerge.KafkaPipeline
attributes:
  source:
    topics: [t]
    key:
      columns: {id: long}
    value:
      columns:
        id: long
        name: string
        minute: timestamp
  changes:
    key:
      columns: [id]
  tables:
    - kind: iceberg
      table: n.t
      mode: upsert
"""
PYDANTIC = re.compile(
    r"[Ii]nput should be|Extra inputs|[Ff]ield required|Value error|valid (integer|string|dictionary|list)|validation"
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["change"])[:60])
def test_every_mistake_is_reported_in_these_words(case: dict[str, Any]) -> None:
    assert mistakes(changed(case["change"])) == case["reported"]
    assert not PYDANTIC.search(" ".join(case["reported"]))


def test_right_document_is_its_model() -> None:
    found = examine(PipelineSpec, RIGHT)
    assert (found.value, found.mistakes) == (PipelineSpec.model_validate(RIGHT), [])


def write(folder: Path, text: str, name: str = "orders") -> Path:
    path = folder / name / "defs.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def lines(path: Path) -> list[str]:
    """What is reported about a file, without the file's name."""
    with pytest.raises(WrongFile) as caught:
        read_pipeline_file(path)
    assert caught.value.where == str(path)
    return [line.removeprefix(f"{path}:") for line in caught.value.what.splitlines()]


def edited(*pairs: tuple[str, str]) -> str:
    text = FILE
    for old, new in pairs:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def test_file_with_many_mistakes(tmp_path: Path) -> None:
    text = edited(
        ("topics: [t]", "topics: t"),
        ("minute: timestamp", "minute: timestmap"),
        ("columns: [id]", "columns: [idd]"),
        ("mode: upsert\n", "mode: upsertt\n      partitioned_by: [day(minut)]\n  pasued: true\n"),
    )
    path = write(tmp_path, text)
    assert [line.split(" Fix: ")[0] for line in lines(path)] == [
        "4:13: source.topics: 't' is not a list.",
        "11:17: source.value.columns.minute: the type 'timestmap' is wrong at position 1: no such type. "
        "Did you mean `timestamp`?",
        "14:17: changes.key.columns[0]: idd is not a column of source.key. Did you mean `id`?",
        "18:13: tables[0].mode: 'upsertt' is not one of append, upsert, upsert_delete or delete. "
        "Did you mean `upsert`?",
        "19:7: tables[0].partitioned_by: there is no such option here. Did you mean `partition_by`?",
        "19:24: tables[0].partitioned_by[0]: minut is not a column of the table. Did you mean `minute`?",
        "20:3: pasued: there is no such option here. Did you mean `paused`?",
    ]
    with pytest.raises(WrongFile, match=rf"^7 mistakes\n  {path}:4:13: source"):
        read_pipeline_file(path)


NOT_YAML = [
    (("topics: [t]", "topics: [t"), "4:13: not YAML: a bracket that is not closed, or a comma that is missing."),
    (("topics: [t]", "\ttopics: [t]"), "4:5: not YAML: a tab where YAML allows spaces only."),
    (
        ("topics: [t]", "topics: [t]: a"),
        "4:16: not YAML: a second `:` in one line, or a line that is indented too far.",
    ),
    (("topics: [t]", "topics: 't"), "4:13: not YAML: a quote that is not closed."),
    (("topics: [t]", "topics: *all"), "4:13: not YAML: `*all` is defined nowhere above."),
    (("topics: [t]", "topics: !env T"), "4:13: not YAML: the tag `!env` is not known."),
    (("topics: [t]", "topics: @t"), "4:13: not YAML: a value cannot begin with `@`."),
    (("  changes:", " changes:"), "12:2: not YAML: the line does not continue what is above it."),
    (("    topics: [t]", "    topics\n    pattern: t"), "5:12: not YAML"),
    (("  tables:", "---\n  tables:"), "15:1: not YAML: a second document."),
    (("table: n.t", 'table: "n\\.t"'), "17:17: not YAML: `\\.` means nothing between double quotes."),
    (("topics: [t]", "topics: \x07"), "4:13: a character that YAML does not allow."),
    (("topics: [t]", "topics: {[a]: b}"), "4:14: not YAML: a key that is a list or a map."),
    *(
        (("topics: [t]", f"topics: {value}"), f"4:13: not YAML: a value that is none of the type `{kind}`.")
        for value, kind in [
            ("!!int abc", "int"),
            ("!!int ''", "int"),
            ("!!bool maybe", "bool"),
            ("!!float x", "float"),
            ("!!timestamp x", "timestamp"),
            ("0x_", "int"),
            ("0b_", "int"),
            ("9" * 5000, "int"),
        ]
    ),
    (("topics: [t]", "topics: &a [[*a]]"), "4:13: not YAML: more than 50 levels, or an alias inside itself."),
    (("topics: [t]", f"topics: {'[' * 60}{']' * 60}"), "4:61: not YAML: more than 50 levels, or an alias inside"),
    (("topics: [t]", f"topics: {'[' * 5000}{']' * 5000}"), "1:1: not YAML: more than 50 levels, or an alias inside"),
]


@pytest.mark.parametrize(("pair", "says"), NOT_YAML, ids=[pair[1][:40] for pair, _ in NOT_YAML])
def test_file_that_is_not_yaml(tmp_path: Path, pair: tuple[str, str], says: str) -> None:
    (line,) = lines(write(tmp_path, edited(pair)))
    assert line.startswith(says)


WRONG_FILES = [
    ("", ["1:1: the file is empty. Fix: begin with `type: batchmerge.KafkaPipeline` and `attributes:`"]),
    ("- 1", ["1:1: it does not begin with a map (lines of `name: value`). Fix: begin with `type: "
             "batchmerge.KafkaPipeline` and `attributes:`"]),
    ("tpye: a\nattributes: 5\n", [
        "1:1: tpye: there is no such key. Did you mean `type`?",
        "1:1: type: it is missing. Fix: add `type: batchmerge.KafkaPipeline`",
        "2:1: attributes: 5 is not a map. Fix: write the pipeline's options below `attributes:`",
    ]),
    (FILE.replace("KafkaPipeline", "KafkaPipelin"), [
        "1:7: type: 'batchmerge.KafkaPipelin' is not a pipeline. "
        "Fix: write `type: batchmerge.KafkaPipeline`",
    ]),
    (FILE + "      mode: append\n", [
        "19:7: tables[0].mode: the key stands twice: in line 18 too. Fix: keep one of them",
    ]),
    (FILE.replace("mode: upsert", "conection: sea"), [
        "16:7: tables[0].mode: it is missing. Fix: add it (append: one row per record, without deletes; upsert: one "
        "row per key, deletes are ignored; upsert_delete: one row per key, a delete removes it; delete: one row per "
        "record, a delete removes all rows of its key)",
        "18:7: tables[0].conection: there is no such option here. Did you mean `connection`?",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), WRONG_FILES)
def test_file_that_is_no_pipeline(tmp_path: Path, text: str, says: list[str]) -> None:
    assert lines(write(tmp_path, text)) == says


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the folder's name 'Orders' cannot be a pipeline's name"):
        read_pipeline_file(write(tmp_path, FILE, "Orders"))
    for name in ("input", "class", "a" * 64):
        with pytest.raises(ConfigurationError, match=f"the folder's name '{name}' cannot be a pipeline's name"):
            read_pipeline_file(write(tmp_path, FILE, name))
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_pipeline_file(tmp_path / "nowhere" / "defs.yaml")
    path = write(tmp_path, "")
    path.write_bytes(b"type: \xff")
    with pytest.raises(ConfigurationError, match="it is not UTF-8 at byte 6"):
        read_pipeline_file(path)


def test_right_file_has_the_name_of_its_folder(tmp_path: Path) -> None:
    found = read_pipeline_file(write(tmp_path, FILE, "orders_2"))
    assert found.name == "orders_2"
    assert [table.table for table in found.spec.tables] == ["n.t"]


def test_times_are_text_as_dagster_reads_them(tmp_path: Path) -> None:
    text = FILE + "      properties: {made: 2026-01-01}\n"
    (table,) = read_pipeline_file(write(tmp_path, text)).spec.tables
    assert table.model_dump()["properties"] == {"made": "2026-01-01"}


def test_keys_merged_from_elsewhere_are_no_duplicates(tmp_path: Path) -> None:
    text = edited(("      mode: upsert\n", "      mode: upsert\n      evolve: &all {add_columns: true}\n"))
    text += "    - kind: iceberg\n      table: n.u\n      mode: upsert\n      evolve: {<<: *all, add_columns: fals}\n"
    assert [line.split(". ")[0] for line in lines(write(tmp_path, text))] == [
        "23:39: tables[1].evolve.add_columns: 'fals' is neither true nor false"
    ]


def test_connections_that_are_not_there(tmp_path: Path) -> None:
    connections = Connections(
        {
            "kafka": KafkaConnection(kind="kafka", bootstrap_servers="a:1"),
            "lake": IcebergConnection(kind="iceberg", type="sql"),
            "spark": SparkConnection(kind="spark", remote="sc://a:1"),
        },
        "connections.yaml",
    )
    right = read_pipeline_file(write(tmp_path, FILE))
    right.check_connections(connections)
    text = edited(
        ("topics: [t]", "topics: [t]\n    connection: kafak"),
        ("      columns: {id: long}", "      columns: {id: long}\n      registry: lake"),
        ("table: n.t", "table: n.t\n      connection: sea"),
    )
    path = write(tmp_path, text + "    - kind: clickhouse\n      table: d.t\n      mode: upsert\n")
    with pytest.raises(WrongFile) as caught:
        read_pipeline_file(path).check_connections(connections)
    assert [line.removeprefix(f"{path}:") for line in caught.value.what.splitlines()] == [
        "5:17: source.connection: there is no connection 'kafak' in connections.yaml. Did you mean `kafka`?",
        "8:17: source.key.registry: 'lake' is a connection of kind iceberg in connections.yaml, not of kind "
        "schema_registry or glue_schema_registry. Fix: add a connection of kind schema_registry or "
        "glue_schema_registry there",
        "20:19: tables[0].connection: there is no connection 'sea' in connections.yaml. Fix: name one of kind "
        "iceberg (lake), or add this one there",
        "22:7: tables[1].connection: there is no connection 'clickhouse' in connections.yaml. Fix: name one "
        "of kind clickhouse (there is none yet), or add this one there",
    ]


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({}))
JUNK = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
)
FULL = changed(
    {
        "source.value.envelope": {"kind": "debezium", "metadata": {"version": "source.lsn"}},
        "source.transform": {"sql": "select *, id + 1 as next from records", "columns": {}},
        "source.per_topic": {"t": {"value": {"format": "avro", "registry": "r"}}},
        "source.start": {"offsets": {"t": {"0": 5}}},
        "changes.op": TAKEN_OUT,
        "maintenance": {"compaction": {"sort_by": ["id"]}, "skip_tables": ["n.t"]},
        "tables": [
            {**RIGHT["tables"][0], "partition_by": ["id"], "route": {"field": "name", "matches": "a.*"}},
            {"kind": "clickhouse", "table": "d.t", "mode": "append", "column_types": {"id": "Int8"}, "ttl": "version"},
            {"kind": "bigquery", "table": "d.t", "mode": "upsert", "cluster_by": ["id"], "labels": {"a": "b"}},
        ],
    }
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for step, value in inside for place in places(value, (*path, step)))]


def has(node: Any, step: Any) -> bool:
    return step in node if isinstance(node, dict) else isinstance(node, list) and step in range(len(node))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(places(FULL)[1:]), JUNK), min_size=1, max_size=3))
def test_whatever_is_written_is_reported_in_plain_words(damage: list[tuple[tuple[Any, ...], Any]]) -> None:
    document: Any = copy.deepcopy(FULL)
    for (*outer, last), value in damage:
        at = document
        for step in outer:
            at = at[step] if has(at, step) else None
        if has(at, last):
            at[last] = value
    found = examine(PipelineSpec, document)
    assert (found.value is None) == bool(found.mistakes)
    assert not PYDANTIC.search(" ".join(mistake.what for mistake in found.mistakes))
    for mistake in found.mistakes:
        assert mistake.path, mistake


def test_paths_and_guesses() -> None:
    assert shown_path(("tables", 0, "partition_by", 1)) == "tables[0].partition_by[1]"
    assert shown_path(("source", "per_topic", "a.b", "value")) == 'source.per_topic["a.b"].value'
    assert closest("maxRecords", ["max_records", "records"]) == "max_records"
    assert closest("gate", ["carrier", "flight"]) is None
