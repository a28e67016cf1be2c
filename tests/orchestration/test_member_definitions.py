"""What Dagster sees of a pipeline with `for_each`, without any service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from jobs.events.messages import CommitTable, make_event
from jobs.members.known_topics import remember
from jobs.spec.pipeline_file import read_pipeline_file
from orchestration.definitions import with_shared
from orchestration.loading import load_folder
from orchestration.sensors.control import ControlCursor, control_sensor
from tests.kit import specs
from tests.kit.many_topics import MANY, topics, write_pipeline
from tests.kit.many_topics import document as many_topics


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of pipeline files, with a data folder of its own."""
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path / "home"))
    return tmp_path / "project" / "orchestration" / "defs"


def keys(definitions: dg.Definitions) -> set[str]:
    return {"/".join(key.path) for key in definitions.resolve_asset_graph().get_all_asset_keys()}


def test_two_hundred_topics_have_assets_and_few_steps(folder: Path) -> None:
    write_pipeline(folder, "many")
    remember("many", topics(MANY))

    found = with_shared(load_folder(folder))

    graph = found.resolve_asset_graph()
    own = {"kafka/topics_of_many", "landing/many", "iceberg/many/each_table", "clickhouse/many/each_table"}
    assert len(keys(found)) == len(own) + 3 * MANY
    assert own < keys(found)
    job = found.resolve_job_def("many")
    assert {"/".join(key.path) for key in job.asset_layer.executable_asset_keys} == own - {"kafka/topics_of_many"}
    table = graph.get(dg.AssetKey(["iceberg", "many", "t7"]))
    assert table.parent_keys == {
        dg.AssetKey(["kafka", "many.public.t7"]),
        dg.AssetKey(["iceberg", "many", "each_table"]),
    }
    origins = table.metadata["dagster/column_lineage"].deps_by_column
    assert origins["name"] == [dg.TableColumnDep(dg.AssetKey(["landing", "many"]), "value.name")]
    assert {graph.get(key).group_name for key in graph.get_all_asset_keys()} == {
        "many",
        "many_topics",
        "many_iceberg",
        "many_clickhouse",
    }


def test_loads_before_any_topic_was_seen(folder: Path) -> None:
    write_pipeline(folder, "many")
    assert keys(with_shared(load_folder(folder))) == {
        "kafka/topics_of_many",
        "landing/many",
        "iceberg/many/each_table",
        "clickhouse/many/each_table",
    }


def test_names_that_records_bring_keep_nothing_from_being_loaded(folder: Path) -> None:
    write_pipeline(folder, "events", ("iceberg",))
    path = folder / "events" / "defs.yaml"
    written = yaml.safe_load(path.read_text())
    parts = written["attributes"]
    parts["source"] = {"topics": ["t"], "value": {"format": "json", "columns": {"id": "long", "kind": "string"}}}
    parts |= {"route_by": "kind", "new_tables": {}}
    parts["tables"] = [{"kind": "iceberg", "table": "events.{route_by}", "mode": "append"}]
    path.write_text(yaml.safe_dump(written))
    write_pipeline(folder, "other", ("iceberg",))
    other = folder / "other" / "defs.yaml"
    parts["tables"] = [{"kind": "iceberg", "table": "events.taken", "mode": "append"}]
    other.write_text(yaml.safe_dump({**written, "attributes": {**parts, "new_tables": None, "route_by": None}}))
    remember("events", ["login", "each_route_by", "taken", "no table"])

    found = with_shared(load_folder(folder))

    assert {key for key in keys(found) if key.startswith("iceberg/")} == {
        "iceberg/events/each_route_by", "iceberg/events/login", "iceberg/events/taken",
    }  # fmt: skip
    graph = found.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["iceberg", "events", "taken"])).group_name == "other"


def test_a_wrong_topic_keeps_no_other_from_being_loaded(folder: Path) -> None:
    write_pipeline(folder, "many")
    remember("many", ["many.public", "many.public.c"])
    found = keys(with_shared(load_folder(folder)))
    assert "iceberg/many/c" in found
    assert "kafka/many.public.c" in found
    assert "kafka/many.public" not in found


NAMED: dict[str, Any] = {
    "source": {"topics": ["t"]},
    "columns": {"id": "long", "kind": "string"},
    "route_by": "kind",
    "new_tables": {},
}


@pytest.mark.parametrize(
    ("document", "seen", "group"),
    [
        (many_topics(), topics(MANY), "many__many.public.t7"),
        (specs.document(specs.table(name="many.{route_by}"), **NAMED), ["t7", "t8"], "many"),
    ],
)
def test_commits_elsewhere_are_shown_on_the_table_of_their_topic_or_name(
    document: dict[str, object],
    seen: list[str],
    group: str,
    folder: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    specs.write(folder, "many", document)
    remember("many", seen)
    event = make_event(group, "a run elsewhere", CommitTable("c", 3, "lake", "many.t7"))
    monkeypatch.setattr("orchestration.sensors.control._new_events", lambda *_: ([event], ControlCursor()))
    sensor = control_sensor("many", read_pipeline_file(folder / "many" / "defs.yaml").spec)
    found = sensor(dg.build_sensor_context(instance))
    assert isinstance(found, dg.SensorResult)
    assert [one.asset_key.path for one in found.asset_events] == [["iceberg", "many", "t7"]]
