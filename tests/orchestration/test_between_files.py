"""Pipeline files that are right by themselves, and wrong beside each other: `check` says so, and so does loading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.members.known_topics import remember
from jobs.spec.members import member_name
from orchestration import cli, files
from orchestration.definitions import with_shared
from orchestration.files import pipeline_spec
from orchestration.loading import WrongPipelineFiles, load_folder
from orchestration.names import further_jobs
from tests.kit import specs

EACH = {"for_each": "topic"}
NEW = {
    "columns": {"id": "long", "kind": "string"},
    "route_by": "kind",
    "new_tables": {"allow": ".*"},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of pipeline files, with a data folder and connections of its own."""
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path / "home"))
    made = tmp_path / "project" / "orchestration" / "defs"
    monkeypatch.setattr(files, "FOLDER", made)
    return made


Write = Callable[..., None]


@pytest.fixture
def write(folder: Path) -> Write:
    def one(name: str, table: str, *, kind: str = "clickhouse", options: Any = None, **parts: Any) -> None:
        specs.write(folder, name, specs.document(specs.table(kind, name=table, **(options or {})), **parts))

    return one


def check(*names: str) -> str:
    return CliRunner().invoke(cli.batchmerge, ["check", "--files-only", *names]).output


def refusal(folder: Path) -> str:
    with pytest.raises(WrongPipelineFiles) as caught:
        load_folder(folder)
    return str(caught.value).strip()


@pytest.mark.parametrize("name", ["defs.yml", "component.yaml"])
def test_other_names_that_dagster_knows_are_read_too(folder: Path, write: Write, name: str) -> None:
    """Else `check` would pass, and nothing of the project load."""
    write("orders", "shop.orders")
    (folder / "orders" / "defs.yaml").rename(folder / "orders" / name)
    assert "ok    pipeline orders: file" in check("orders")
    assert pipeline_spec("orders").tables[0].table == "shop.orders"
    assert load_folder(folder).resolve_job_def("orders").name == "orders"


def test_check_says_that_it_has_checked_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a mistyped folder would look like a project without a mistake."""
    monkeypatch.setattr("orchestration.cli.check.FOLDER", folder)
    missing = CliRunner().invoke(cli.batchmerge, ["check", "--files-only"])
    assert f"WRONG pipelines: {folder}: the folder of pipeline files does not exist. Fix: make it" in missing.output
    assert missing.exit_code == 2
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    assert f"WARN  pipelines: {folder} has no pipeline file" in check()


def test_two_files_write_one_table(folder: Path, write: Write) -> None:
    write("orders", "shop.orders", source={"topics": ["a", "b"]})
    write("late", "shop.orders")
    write("other", "shop.others")
    orders, late = (str(folder / name / "defs.yaml") for name in ("orders", "late"))
    says = (
        f"{orders}:13:12: tables[0].table: pipeline orders cannot write it: shop.orders is a table of pipeline late "
        f"({late}:12). Fix: write to a table of its own, or read both sources in one pipeline"
    )

    assert refusal(folder) == says
    assert f"WRONG pipeline orders: {says}\n" in check()
    assert says in check("orders")
    assert says in check("late")
    assert "shop.orders" not in check("other")
    assert CliRunner().invoke(cli.batchmerge, ["check", "--files-only", "late"]).exit_code == 2


@pytest.mark.parametrize(
    "otherwise",
    [{"kind": "iceberg"}, {"options": {"connection": "elsewhere"}}, {"table": "shop.orders_2"}],
    ids=["kind", "connection", "name"],
)
def test_tables_that_are_not_the_same(folder: Path, write: Write, otherwise: dict[str, Any]) -> None:
    write("one", "shop.orders")
    write("two", **{"table": "shop.orders", **otherwise})
    assert "cannot write it" not in check()
    with_shared(load_folder(folder)).resolve_asset_graph()


def test_table_of_a_topic_is_another_pipelines(folder: Path, write: Write) -> None:
    write("orders", "shop.orders")
    write("shop", "{topic[0]}.{topic[1]}", source={"topics": ["shop.lines", "shop.orders"], **EACH})
    says = f"cannot write it: shop.orders is a table of pipeline orders ({folder / 'orders/defs.yaml'}:12)"
    assert says in refusal(folder)
    assert says in check()


def test_many_tables_that_are_another_pipelines_are_one_mistake(folder: Path, write: Write) -> None:
    topics = [f"db.shop.t{n}" for n in range(3)]
    write("one", "shop.{topic[2]}", source={"topics": topics, **EACH})
    write("two", "shop.{source.table}", source={"topics": topics, **EACH})
    assert "cannot write it: shop.t0 and 2 more are tables of pipeline one" in refusal(folder)
    assert check().count("cannot write it") == 1


def test_tables_called_by_one_template(folder: Path, write: Write) -> None:
    """Their tables differ, and Dagster has one asset for the entries of both."""
    for name in ("one", "two"):
        write(name, "shop.{topic[1]}", source={"topics": [f"{name}.{name}"], **EACH})
    says = "pipeline one names its tables so too"
    assert says in refusal(folder)
    assert says in check()


def test_topic_that_appears_stops_no_other_pipeline(folder: Path, write: Write) -> None:
    """Its own run refuses it: the files are loaded as before."""
    write("orders", "shop.orders")
    write("shop", "shop.{topic[1]}", source={"topics": [], "pattern": r"shop\..*", **EACH})
    assert "cannot write it" not in check()
    remember("shop", ["shop.orders"])
    with_shared(load_folder(folder)).resolve_asset_graph()
    assert "cannot write it: shop.orders is a table of pipeline orders" in check()


def test_name_that_records_bring_is_another_pipelines_table(folder: Path, write: Write) -> None:
    write("orders", "shop.orders")
    write("shop", "shop.{route_by}", **NEW)
    assert "cannot write it" not in check()
    remember("shop", ["lines", "orders"])
    with_shared(load_folder(folder)).resolve_asset_graph()
    assert "cannot write it: shop.orders is a table of pipeline orders" in check()


def test_name_that_its_file_allows_no_more_has_no_table(write: Write) -> None:
    write("orders", "shop.orders")
    write("shop", "shop.{route_by}", **{**NEW, "new_tables": {"allow": "lines"}})
    remember("shop", ["lines", "orders"])
    assert "cannot write it" not in check()


@pytest.mark.parametrize("topic", ["shop.public.orders", "Shop.A-b"])
def test_a_topic_may_be_named_as_errors_name_it(write: Write, topic: str) -> None:
    """They have commands to copy: `batchmerge dead-letters list shop__shop__public__orders`."""
    write("shop", "n.{name}", source={"topics": [], "pattern": ".*", **EACH})
    remember("shop", ["other", topic])
    name = member_name("shop", topic)
    assert files.split_name(name) == files.split_name(f"shop/{topic}") == ("shop", topic)
    assert pipeline_spec(name) == pipeline_spec("shop")
    assert files.split_name("shop__unknown") == ("shop__unknown", None)


def test_name_like_a_members(folder: Path, write: Write) -> None:
    write("many", "many.{topic}", source={"topics": ["x"], **EACH})
    write("many__public", "n.t")
    says = "pipeline many__public: its name begins with many__"
    assert says in refusal(folder)
    assert says in check()


def test_name_like_a_job(folder: Path, write: Write) -> None:
    """Dagster has one job of a name, and would load no pipeline at all."""
    write("orders", "shop.orders", interval="5s")
    found = with_shared(load_folder(folder)).get_repository_def()
    jobs = {job.name for job in found.get_all_jobs()} - {"orders"}
    assert jobs - {"__ASSET_JOB"} == set(further_jobs("orders", pipeline_spec("orders")))
    write("orders_plan", "shop.plans")
    says = "pipeline orders_plan: pipeline orders has a job of this name. Fix: give the folder another name"
    assert refusal(folder) == says
    assert f"WRONG pipeline orders_plan: {says}\n" in check()
    assert says in check("orders")
    write("orders_plan", "shop.plans")
    (folder / "orders_plan").rename(folder / "orders_continuous")
    assert refusal(folder) == says.replace("_plan", "_continuous")
    write("orders", "shop.orders")
    assert with_shared(load_folder(folder)).get_repository_def().has_job("orders_continuous")


def test_a_pipeline_in_a_folder_of_others_is_one_for_commands_too(folder: Path, write: Write) -> None:
    """Dagster loads it: without it in `status`, `check` and metrics nobody would see it fail."""
    write("orders", "shop.orders")
    specs.write(folder / "billing", "invoices", specs.document(specs.table(name="shop.invoices")))
    other = folder / "dbt" / "invoices" / "defs.yaml"
    other.parent.mkdir(parents=True)
    other.write_text("type: dagster_dbt.DbtProjectComponent\n")
    assert files.pipeline_names() == ["invoices", "orders"]
    assert [table.table for table in pipeline_spec("invoices").tables] == ["shop.invoices"]
    assert "ok    pipeline invoices: file" in check()
    other.unlink()
    assert with_shared(load_folder(folder)).get_repository_def().has_job("invoices")


def test_pipelines_of_a_config_map_and_behind_a_link(folder: Path, write: Write, tmp_path: Path) -> None:
    """Kubernetes mounts links to files in a hidden folder. Dagster follows links, and leaves hidden folders out."""
    write("orders", "shop.orders")
    hidden = folder / "orders" / "..2026_11_29"
    hidden.mkdir()
    (folder / "orders" / "defs.yaml").rename(hidden / "defs.yaml")
    (folder / "orders" / "..data").symlink_to(hidden.name)
    (folder / "orders" / "defs.yaml").symlink_to("..data/defs.yaml")
    specs.write(tmp_path / "elsewhere", "invoices", specs.document(specs.table(name="shop.invoices")))
    (folder / "invoices").symlink_to(tmp_path / "elsewhere" / "invoices")
    assert files.pipeline_names() == ["invoices", "orders"]
    assert "ok    pipeline invoices: file" in check()
    loaded = with_shared(load_folder(folder)).get_repository_def()
    assert loaded.has_job("invoices")
    assert loaded.has_job("orders")


def test_two_pipelines_of_one_name(folder: Path, write: Write) -> None:
    write("orders", "shop.orders")
    specs.write(folder / "old", "orders", specs.document(specs.table(name="shop.old_orders")))
    orders, old = (folder / part / "orders" / "defs.yaml" for part in ("", "old"))
    says = f"{orders}: there is another pipeline orders ({old}). Fix: give one of the folders another name"
    assert refusal(folder) == says
    assert f"WRONG pipeline orders: {says}\n" in check()
