"""What Dagster shows of a pipeline before its first run: lineage, descriptions, columns, owners, options, links."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import dagster as dg
import pytest
from dagster._core.definitions.metadata.source_code import LocalFileCodeReference

from orchestration.components import KafkaPipeline
from orchestration.components.config import LandConfig, MergeConfig
from orchestration.definitions import with_shared
from orchestration.loading import WrongPipelineFiles, load_folder
from tests.kit import specs
from tests.kit.flow import Flow

KINDS = ("iceberg", "clickhouse", "bigquery")
TABLES = [dg.AssetKey([kind, "shop", "orders"]) for kind in KINDS]
LANDING = dg.AssetKey(["landing", "p"])


def _flow(**overrides: object) -> Flow:
    tables = [{"kind": kind, "table": "shop.orders", "mode": "upsert_delete"} for kind in KINDS]
    freshness = {"warn_minutes": 5, "fail_minutes": 9}
    given: dict[str, Any] = {"tables": tables, "owners": ["team:shop"], "freshness": freshness, **overrides}
    return Flow("orders", [], name="p", overrides=given)


def _graph(flow: Flow) -> Any:
    return with_shared(KafkaPipeline(flow.name, flow.spec).definitions()).resolve_asset_graph()


def test_lineage_is_topic_landing_tables() -> None:
    graph = _graph(_flow())
    assert graph.get(LANDING).parent_keys == {dg.AssetKey(["kafka", "orders"])}
    assert {key: graph.get(key).parent_keys for key in TABLES} == {key: {LANDING} for key in TABLES}


def test_a_launch_on_assets_has_the_executor_of_the_job_or_the_one_that_is_named() -> None:
    """Every backfill is one: its steps wait for pools asleep, and those of a killed one are found."""
    found = KafkaPipeline("p", _flow().spec).definitions()
    named = dg.Definitions(executor=dg.in_process_executor)
    for definitions, name in ((found, "step_processes"), (dg.Definitions.merge(found, named), "in_process")):
        repository = with_shared(definitions).get_repository_def()
        assert repository.get_job("__ASSET_JOB").executor_def.name == name
        assert repository.get_job("p").executor_def.name == "step_processes"


def test_every_asset_says_whose_it_is_and_what_it_is_made_of() -> None:
    graph = _graph(_flow())
    assert graph.get(dg.AssetKey(["kafka", "orders"])).kinds == {"kafka"}
    assert [graph.get(key).kinds for key in TABLES] == [{"iceberg", "spark"}, {"clickhouse"}, {"bigquery"}]
    for key in (LANDING, *TABLES):
        asset = graph.get(key)
        assert (asset.group_name, asset.owners) == ("p", ["team:shop"])
        assert asset.tags["batchmerge/pipeline"] == "p"
        columns = {column.name: column for column in asset.metadata["dagster/column_schema"].columns}
        assert "id" in columns or key == LANDING
    assert [columns["id"].description, columns["id"].constraints.nullable] == ["part of the key", False]
    origins = graph.get(TABLES[0]).metadata["dagster/column_lineage"].deps_by_column
    assert origins["amount"] == [dg.TableColumnDep(LANDING, "value.amount")]


@pytest.mark.parametrize(("key", "verb"), list(zip(TABLES, ("MERGE INTO", "INSERT INTO", "MERGE"), strict=True)))
def test_descriptions_state_the_merge_rule_and_the_sql(key: dg.AssetKey, verb: str) -> None:
    description = _graph(_flow()).get(key).description
    assert "**upsert_delete**: One row per key, from its last change; a delete removes the row." in description
    assert "Key: id. Order of changes: batch, then topic, partition and offset." in description
    assert f"```sql\n{verb} " in description
    assert "`amount`" in description


@pytest.mark.parametrize(("deletes", "what"), [("leave_out", "ignored."), ("rows", "rows, too.")])
def test_descriptions_say_once_what_becomes_of_deletes(deletes: str, what: str) -> None:
    table = {"kind": "iceberg", "table": "shop.orders", "mode": "upsert", "deletes": deletes}
    description = _graph(_flow(tables=[table])).get(TABLES[0]).description
    assert f"**upsert**: One row per key, from its last change. Deletes are {what}\n" in description


def test_the_sql_of_thousands_of_columns_is_left_out() -> None:
    columns = {"id": "int not null", "op": "string", **{f"c{n}": "string" for n in range(2000)}}
    source = {**_flow().spec_document["source"], "value": {"format": "json", "columns": columns}}
    graph = _graph(_flow(source=source))
    for key in TABLES:
        description = graph.get(key).description
        assert "`batchmerge plan` shows it" in description
        assert len(description) < 500


def test_freshness_is_that_of_the_file() -> None:
    graph = _graph(_flow())
    for key in TABLES:
        policy = graph.get(key).freshness_policy
        assert (policy.fail_window.to_timedelta(), policy.warn_window.to_timedelta()) == (
            timedelta(minutes=9),
            timedelta(minutes=5),
        )


def test_code_version_follows_the_file() -> None:
    one, same, other = (_graph(flow) for flow in (_flow(), _flow(), _flow(batch={"max_records": 7})))
    for key in (LANDING, *TABLES):
        assert one.get(key).code_version == same.get(key).code_version != other.get(key).code_version


@pytest.mark.parametrize("config", [LandConfig, MergeConfig])
def test_launchpad_options_are_few_with_default_and_description(config: type[dg.Config]) -> None:
    assert set(config.model_fields) <= {"mode", "topics", "max_batches", "until_caught_up"}
    for name, option in config.model_fields.items():
        assert not option.is_required(), name
        assert option.description, name
        assert len(option.description) > 20, name


def test_checks_block_where_a_promise_is_broken_and_warn_elsewhere() -> None:
    graph = _graph(_flow())
    blocking = {key for key in graph.asset_check_keys if graph.get_check_spec(key).blocking}
    assert {(key.asset_key.path[0], key.name) for key in blocking} == {
        ("landing", "offsets_contiguous"),
        ("landing", "counts_add_up"),
        ("landing", "batch_is_next"),
        *((kind, name) for kind in KINDS for name in ("offsets_contiguous", "batch_is_next")),
        ("iceberg", "keys_unique"),
    }
    warn = {key.name for key in graph.asset_check_keys - blocking}
    assert warn == {
        "schema_as_declared",
        "caught_up",
        "no_stale_keys",
        "fields_declared",
        "reconciled",
        "keys_unique",
        "tables_agree",
    }


def _folder(folder: Path, flow: Flow) -> Path:
    specs.write(folder, flow.name, flow.spec_document)
    return folder


def test_each_table_links_to_its_file_in_any_folder(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "of-a-team", _flow())
    graph = load_folder(folder).resolve_asset_graph()
    for key in (LANDING, *TABLES):
        (link,) = graph.get(key).metadata["dagster/code_references"].code_references
        assert isinstance(link, LocalFileCodeReference)
        assert link.file_path == str(folder / "p" / "defs.yaml")


def test_folder_at_the_top_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test may not write one."""
    monkeypatch.setattr("orchestration.loading.require_pipelines", lambda _: None)
    monkeypatch.setattr("orchestration.loading.wrong_files", lambda _: [])
    monkeypatch.setattr(
        dg.ComponentTree, "from_module", lambda project_root, **_: Mock(build_defs=lambda: project_root)
    )
    found: object = load_folder(Path("/pipelines"))
    assert found == Path("/")


def test_folder_without_pipelines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongPipelineFiles, match="the folder of pipeline files does not exist"):
        load_folder(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(WrongPipelineFiles, match=r"empty: there is no pipeline file .* Fix: write .*defs\.yaml"):
        load_folder(tmp_path / "empty")


def test_values_at_the_edge_of_what_a_file_may_say_are_definitions() -> None:
    """So Dagster takes whatever `batchmerge check` takes."""
    edges = {"owners": ["a.b@c.de", "team:x"], "since": "1000-01-01-00:00", "cron": "0 0 29 feb *"}
    freshness = {"warn_minutes": 5_256_000, "fail_minutes": 5_256_000}
    spec = _flow(freshness=freshness, maintenance={"cron": "0 0 * * l5"}, **edges).spec
    definitions = with_shared(KafkaPipeline("a" * 63, spec).definitions())
    definitions.get_repository_def().load_all_definitions()


def test_what_dagster_refuses_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of Dagster's that no check of ours has."""
    monkeypatch.setattr("orchestration.components.pipeline.landing_asset", lambda *_: dg.AssetSpec("a", owners=["b"]))
    path = specs.write(tmp_path, "orders", specs.document())
    with pytest.raises(
        WrongPipelineFiles, match=rf"{path}: Dagster refuses the definitions: Invalid owner 'b'.*\. Fix: "
    ) as caught:
        load_folder(tmp_path)
    assert "Traceback" not in str(caught.value)
