"""Commands that move offsets or tables refuse to go on while a run of the pipeline is under way."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from orchestration.cli.offset_reset import require_idle
from orchestration.names import CONTINUOUS_TAG, PIPELINE_TAG
from resources.errors import Unavailable
from tests.kit import specs


@pytest.mark.parametrize("name", ["shop", "shop/shop.orders"])
def test_a_run_of_the_pipeline_is_in_the_way_also_of_one_topic(
    name: str, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = specs.table(name="n.{topic[1]}")
    specs.write(
        tmp_path / "defs", "shop", specs.document(table, source={"topics": ["shop.orders"], "for_each": "topic"})
    )
    monkeypatch.setattr("orchestration.files.FOLDER", tmp_path / "defs")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "instance"))
    require_idle(name)
    run = dg.DagsterRun("shop", tags={PIPELINE_TAG: "shop"}, status=dg.DagsterRunStatus.NOT_STARTED)
    instance.add_run(run)
    with pytest.raises(Unavailable, match=r"pipeline shop: run .* of shop is not_started"):
        require_idle(name)


def test_a_run_of_a_pipeline_without_a_file_is_found_by_the_tables_of_the_one_that_takes_over(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs.write(tmp_path / "defs", "new", specs.document(specs.table(name="n.orders")))
    monkeypatch.setattr("orchestration.files.FOLDER", tmp_path / "defs")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "instance"))
    require_idle("old", file_of="new")
    instance.add_run(dg.DagsterRun("old", tags={PIPELINE_TAG: "old"}, status=dg.DagsterRunStatus.NOT_STARTED))
    require_idle("new")
    with pytest.raises(Unavailable, match=r"pipeline old: run .* of old is not_started"):
        require_idle("old", file_of="new")


def test_a_continuous_run_of_a_pipeline_without_a_file_is_ended_by_its_id(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sensor of the old name is left to end it, and no file that `batchmerge pause` could read."""
    for name in ("new", "other"):
        specs.write(tmp_path / "defs", name, specs.document(specs.table(name="n.orders")))
    monkeypatch.setattr("orchestration.files.FOLDER", tmp_path / "defs")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "instance"))
    ids = {}
    for name in ("old", "other"):
        tags = {PIPELINE_TAG: name, CONTINUOUS_TAG: name}
        run = dg.DagsterRun(f"{name}_continuous", tags=tags, status=dg.DagsterRunStatus.NOT_STARTED)
        ids[name] = instance.add_run(run).run_id
    with pytest.raises(Unavailable, match=rf"run {ids['old']} goes on until it is cancelled in Dagster") as refused:
        require_idle("old", file_of="new")
    assert "batchmerge pause" not in str(refused.value)
    with pytest.raises(Unavailable, match="`batchmerge pause other`"):
        require_idle("other", file_of="new")
