"""What a pipeline file with `for_each` says for each topic, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.members.known_topics import known_members, known_topics, remember
from jobs.members.members import Members
from jobs.planning.plan import TopicState
from jobs.spec.members import Expansion, expand, member_name, member_of
from jobs.spec.pipeline import PipelineSpec
from jobs.spec.pipeline_file import read_pipeline_file
from jobs.spec.table_templates import each, rendered, words_of
from resources.config_files.mistakes import Mistakes, WrongFile
from resources.connections import Connections
from resources.errors import ConfigurationError, StorageError, TopicMissing
from tests.kit import specs

PATTERN = r"shop\.(?P<schema>\w+)\.(?P<table>.+)"
TABLES = [
    specs.table("iceberg", "upsert_delete", "shop.{table}"),
    specs.table("clickhouse", "upsert_delete", "{source.schema}.{topic[-1]}"),
]
LINES = {
    "source": {
        "key": {"columns": {"order": "long not null", "line": "int not null"}},
        "value": {"columns": {"order": "long", "line": "int"}},
    },
    "changes": {"key": {"columns": ["order", "line"]}},
}


def document(source: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    return specs.document(
        *parts.pop("tables", TABLES),
        columns={"id": "long", "name": "string"},
        key={"id": "long not null"},
        value={"envelope": "debezium"},
        source={"topics": [], "pattern": PATTERN, "for_each": "topic", **(source or {})},
        **parts,
    )


def expanded(*topics: str, later: frozenset[str] = frozenset(), **parts: Any) -> Expansion:
    return expand("shop", PipelineSpec.model_validate(document(**parts)), topics, later)


def refusal(*topics: str, **parts: Any) -> str:
    (refused,) = expanded(*topics, **parts).refused
    return str(refused.error("shop"))


def test_each_topic_is_a_pipeline_of_its_own() -> None:
    orders, lines = expanded(
        "shop.public.orders", "other", "shop.sales.lines", overrides={"shop.sales.lines": LINES}
    ).members

    assert (orders.key, orders.spec.source.topics) == ("shop.public.orders", ["shop.public.orders"])
    assert (orders.spec.source.pattern, orders.spec.source.for_each, orders.spec.overrides) == (None, None, {})
    assert [table.table for table in orders.spec.tables] == ["shop.orders", "public.orders"]
    assert [table.table for table in lines.spec.tables] == ["shop.lines", "sales.lines"]
    assert list(orders.spec.source.value.columns) == ["id", "name", "_op"]
    assert list(lines.spec.source.value.columns) == ["order", "line", "_op"]
    assert [m.spec.changes.key and m.spec.changes.key.columns for m in (orders, lines)] == [["id"], ["order", "line"]]


def test_overrides_of_an_expression_and_of_a_name_go_together() -> None:
    overrides = {
        r"shop\.public\.log_.*": {"tables": {"mode": "append"}, "batch": {"max_records": 10}},
        "shop.public.log_a": {"tables": {"table": "logs.a"}},
        r"shop\.public\.audit_.*": {"leave_out": True},
    }
    (log, other) = expanded("shop.public.log_a", "shop.public.audit_x", "shop.public.b", overrides=overrides).members

    assert [(t.table, t.mode) for t in log.spec.tables] == [("logs.a", "append"), ("logs.a", "append")]
    assert (log.spec.batch.max_records, other.spec.batch.max_records) == (10, 2_000_000)
    assert [t.mode for t in other.spec.tables] == ["upsert_delete", "upsert_delete"]


@pytest.mark.parametrize(
    ("template", "table"),
    [
        ("{topic[1]}.{topic[2]}", "sales.lines"),
        ("{topic[-2]}.{topic[-1]}", "sales.lines"),
        ("{source.schema}.{source.table}", "sales.lines"),
        ("{schema}.t_{table}", "sales.t_lines"),
        ("{1}.{2}", "sales.lines"),
        ("{1|lower}.{topic|lower}", "sales.shop.sales.lines"),
    ],
)
def test_parts_of_a_topics_name(template: str, table: str) -> None:
    words = words_of("shop.sales.lines", PATTERN)
    assert rendered(template, words) == table


def test_parts_of_a_topics_name_in_lower_case() -> None:
    words = words_of("ORA.SALES.Order_Lines", None)
    assert rendered("{source.schema|lower}.X_{topic[-1]|lower}_{topic[0]}", words) == "sales.X_order_lines_ORA"


def test_what_a_tables_name_cannot_have_is_an_underscore() -> None:
    words = words_of("shop.public.price-list", PATTERN)
    assert rendered("x.{source.table}_{topic[2]}_{name}", words) == "x.price_list_price_list_shop_public_price_list"


def test_a_part_that_the_topic_lacks_is_refused() -> None:
    with pytest.raises(
        Mistakes, match=r"`\{topic\[3\]\}` stands for nothing in the topic's name a.b, which has 2 parts"
    ):
        rendered("x.{topic[3]}", words_of("a.b", None))


def test_names_distinguish_topics_whatever_other_topics_there_are() -> None:
    topics = ["a.b", "a_b", "a__b", "a-b", "A.b", "a..b", "a._b", "a_.b", "a.b_", "x" * 200, "x" * 201]
    names = [member_name("p", topic) for topic in topics]

    assert names[:2] == ["p__a__b", "p__a_b"]
    assert len(set(names)) == len(topics)
    assert all(name.replace("_", "").isalnum() and name == name.lower() and len(name) < 120 for name in names)


def test_two_topics_that_want_one_table_leave_it_to_the_first() -> None:
    text = refusal("shop.a.lines", "shop.b.lines", overrides={"shop.b.lines": LINES})
    assert "topic shop.b.lines: shop.lines is the table of topic shop.a.lines already" in text
    assert "their keys differ (id; order, line)" in text
    assert [m.key for m in expanded("shop.b.lines", "shop.a.lines").members] == ["shop.b.lines"]


def test_a_name_that_a_system_does_not_allow_is_refused_and_the_others_go_on() -> None:
    assert "'shop.a..b' does not have the right form" in refusal("shop.public.a..b", "shop.public.orders")
    assert len(expanded("shop.public.a..b", "shop.public.orders").members) == 1


@pytest.mark.parametrize(
    ("kind", "template", "name"),
    [
        ("clickhouse", "d.{topic}", "d.pg.public.price-list"),
        ("clickhouse", "d.{name}", "d.pg_public_price_list"),
        ("iceberg", "d.{topic[1]}.{topic[2]}", "d.public.price_list"),
        ("bigquery", "d.{name}", "d.pg_public_price_list"),
    ],
)
def test_templates_give_one_valid_name(kind: str, template: str, name: str) -> None:
    (member,) = expanded("pg.public.price-list", tables=[{"kind": kind, "table": template, "mode": "append"}],
                         source={"pattern": "pg.*"}).members  # fmt: skip
    assert member.spec.tables[0].table == name
    # As the topic is called: ClickHouse has a table for any, BigQuery none with dots.
    other = expanded("raw-orders", tables=[{"kind": kind, "table": "d.{topic}", "mode": "append"}],
                     source={"pattern": "raw.*"})  # fmt: skip
    assert [m.spec.tables[0].table for m in other.members] == ["d.raw-orders"]


@pytest.mark.parametrize("topics", [("other",), ("shop.public.a..b",), ("shop.a.lines", "shop.b.lines")])
def test_what_is_refused_is_reported_once(topics: tuple[str, ...]) -> None:
    text = refusal(*topics, source={"pattern": r"other|shop\.(?P<schema>\w+)\.(?P<table>.+)"})

    assert text.count("Fix: ") == 1
    assert text.endswith(f"for this topic alone under `overrides`, `{topics[-1]}`; or write `leave_out: true` there")


def test_a_topic_that_appears_later_is_read_from_its_first_record() -> None:
    at_once, later = expanded(
        "shop.a.one", "shop.a.two", later=frozenset({"shop.a.two"}), source={"start": "latest"}
    ).members
    assert (at_once.spec.source.start, later.spec.source.start) == ("latest", "earliest")


def test_what_names_other_topics_is_left_out_of_a_member() -> None:
    source = {
        "pattern": None,
        "topics": ["shop.a.one", "shop.a.two"],
        "per_topic": {"shop.a.two": {"value": {"format": "json"}}},
        "start": {"offsets": {"shop.a.two": {0: 5}}},
    }
    tables = [specs.table(name="shop.{topic[2]}")]
    maintenance = {"skip_tables": ["iceberg shop.two"]}
    one, two = expanded("shop.a.one", "shop.a.two", source=source, tables=tables, maintenance=maintenance).members

    assert (one.spec.source.per_topic, one.spec.maintenance.skip_tables) == ({}, [])
    assert (list(two.spec.source.per_topic), two.spec.maintenance.skip_tables) == (["shop.a.two"], ["iceberg shop.two"])
    assert one.spec.source.start.offsets == {}  # type: ignore[union-attr]
    assert two.spec.source.start.offsets == {"shop.a.two": {0: 5}}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (document(tables=[specs.table(name="shop.all")]), "the same for all of them"),
        (document(tables=[specs.table(name="shop.{tabel}")]), "Did you mean `{table}`?"),
        (document({"for_each": None}), "set `source.for_each: topic`"),
        (document(overrides={"elsewhere": {"leave_out": True}}), "elsewhere is not a topic of the source"),
        (document(overrides={"shop.(": {"leave_out": True}}), "it is not a regular expression"),
        (document(commit="together", tables=TABLES[:1]), "every table is committed by itself"),
    ],
)
def test_templates_and_overrides_that_mean_nothing_are_refused(made: dict[str, Any], message: str) -> None:
    assert any(message in sentence for sentence in specs.mistakes(made)), specs.mistakes(made)


def test_mistakes_of_topics_that_the_file_names_are_reported_where_they_are_written(tmp_path: Path) -> None:
    overrides = {"shop.sales.lines": {**LINES, "changes": {"key": {"columns": ["order", "lnie"]}}}}
    path = specs.write(tmp_path, "shop", document(overrides=overrides))

    with pytest.raises(WrongFile) as refused:
        read_pipeline_file(path)

    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "lnie" in text)
    assert f"defs.yaml:{line}:" in refused.value.what
    assert 'overrides["shop.sales.lines"].changes.key.columns[1]: topic shop.sales.lines: lnie' in refused.value.what


def test_one_member_by_its_topic() -> None:
    spec = PipelineSpec.model_validate(document())
    assert member_of("shop", spec, "shop.a.one").name == "shop__shop__a__one"
    with pytest.raises(ConfigurationError, match="elsewhere is not a topic of the pipeline"):
        member_of("shop", spec, "elsewhere")


def test_known_topics_are_remembered_in_the_order_of_their_appearance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path))
    spec = PipelineSpec.model_validate(document({"start": "latest"}))
    assert known_topics("shop", spec) == []

    assert remember("shop", ["shop.b.lines", "shop.b.orders"]) == ["shop.b.lines", "shop.b.orders"]
    assert remember("shop", ["shop.a.lines", "shop.b.lines"]) == ["shop.a.lines"]

    assert known_topics("shop", spec) == ["shop.b.lines", "shop.b.orders", "shop.a.lines"]
    found = known_members("shop", spec)
    assert [m.key for m in found.members] == ["shop.b.lines", "shop.b.orders"]
    assert [r.topic for r in found.refused] == ["shop.a.lines"]


class Kafka:
    """Two topics of a thousand records."""

    name = "kafka"

    def topic_names(self) -> set[str]:
        return {"shop.a.lines", "shop.a.orders"}


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Members, "_kafka", Kafka())
    state = TopicState({}, {}, {})
    monkeypatch.setattr("jobs.members.known_members.states_of", lambda _, topics: (dict.fromkeys(topics, state), {}))


def members(*topics: str, **source: Any) -> Members:
    return Members("shop", PipelineSpec.model_validate(document(source)), Connections({}, ""), topics=topics)


@pytest.mark.usefixtures("kafka")
def test_topics_that_cannot_be_kept_are_an_error_where_nothing_else_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path / "file" / "data"))
    with pytest.raises(StorageError, match="topics of shop cannot be kept") as refused:
        members().look()
    assert "BATCHMERGE_HOME" in refused.value.remedy
    with pytest.raises(StorageError):
        members().known()
    table = specs.table("iceberg", "upsert_delete", "shop.{topic[-1]}")
    listed = document({"topics": ["shop.a.lines"], "pattern": None}, tables=[table])
    seen = Members("shop", PipelineSpec.model_validate(listed), Connections({}, "")).look()
    assert [member.key for member in seen.members] == ["shop.a.lines"]


@pytest.mark.usefixtures("kafka")
def test_a_folder_without_topics_is_filled_by_whoever_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path))
    spec = PipelineSpec.model_validate(document())
    assert members().remembered() == []
    assert [member.key for member in members().known()] == known_topics("shop", spec)
    assert len(known_topics("shop", spec)) == 2


@pytest.mark.usefixtures("kafka")
def test_a_topic_that_is_none_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path))
    members().look()
    for ask in (Members.look, Members.known):
        with pytest.raises(TopicMissing, match=r"shop\.a\.order does not exist"):
            ask(members("shop.a.order"))
        with pytest.raises(ConfigurationError, match="elsewhere is not a topic of the pipeline"):
            ask(members("elsewhere"))
    assert [member.key for member in members("shop.a.orders").known()] == ["shop.a.orders"]


def test_a_template_has_a_name_for_all_its_tables() -> None:
    assert each("shop.{topic[2]}") == "shop.each_topic_2"
    assert each("{source.schema}.t_{source.table}") == "each_source_schema.t_each_source_table"
