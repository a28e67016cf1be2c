"""What a landing of many topics shows of each: in metadata, checks and the log of the run."""

from __future__ import annotations

import logging
from dataclasses import replace

import dagster as dg
import pytest

from orchestration.components import checks, metadata
from orchestration.components.member_checks import wrong_before
from orchestration.components.member_metadata import landed_metadata
from orchestration.components.progress import engine_log_in_run
from orchestration.names import landing_key
from tests.kit.batches import landed
from tests.kit.flow import Flow


def test_of_many_topics_the_fields_are_shown_by_topic() -> None:
    left_out, adds = replace(landed(1), unknown={"new": 2}), replace(landed(2), new_columns={"n": "int to long"})
    shown = landed_metadata({"b": [left_out], "a": [adds], "c": [landed(1)]}, {}, 1.0)
    assert shown["unknown fields"].value == {"b": {"new": 2}}
    assert shown["new columns"].value == {"a": {"n": "int to long"}}
    assert metadata.landed([left_out, adds], 1)["new columns"].value == {"n": "int to long"}


def test_a_check_of_many_topics_names_those_that_are_wrong(instance: dg.DagsterInstance) -> None:
    key, spec = landing_key("p"), Flow("t", ["upsert"]).spec
    fields = {
        name: [checks.fields_result(key, spec, [batch])]
        for name, batch in {"a": replace(landed(1), unknown={"new": 2}), "b": landed(1)}.items()
    }
    found = {one.check_name: one for one in checks.combined_results(key, checks.landing_checks(key), fields)}[
        checks.FIELDS
    ]
    assert (found.passed, found.severity, found.metadata["looked at"].value) == (False, dg.AssetCheckSeverity.WARN, 2)
    assert str(found.description).startswith("a: no column takes the field new")

    check = dg.AssetCheckKey(key, checks.FIELDS)
    assert wrong_before(instance, check) == set()

    @dg.asset_check(asset=key, name=checks.FIELDS)
    def again() -> dg.AssetCheckResult:
        return found

    assert (
        dg.Definitions(asset_checks=[again])
        .resolve_implicit_global_asset_job_def()
        .execute_in_process(instance=instance)
        .success
    )
    assert wrong_before(instance, check) == {"a"}


def test_what_is_logged_only_once_is_in_the_log_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    log, batchmerge = logging.getLogger("of_run"), logging.getLogger("batchmerge")
    with engine_log_in_run(log, logging.WARNING, pause=60):  # type: ignore[arg-type]  # a logger like any other
        for topic in ("a", "b"):
            batchmerge.warning("%s fails", topic)
            batchmerge.warning("%s has a field", topic, extra={"once": True})
    logged = [record.getMessage() for record in caplog.records if record.name == "of_run"]
    assert logged == ["a fails", "a has a field", "b has a field"]
