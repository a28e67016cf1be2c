"""What people see in Dagster's page. `SCREENSHOTS=<folder>` keeps pictures of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from resources.connections import Connections, IcebergConnection
from resources.iceberg import IcebergCatalog

pytest.importorskip("playwright", reason="needs the Python package playwright and an installed Chromium")
from playwright.sync_api import Page, expect

from tests.browser.pictures import keep_picture

pytestmark = pytest.mark.slow

TABLE = "/assets/iceberg/air/flights"


def test_lineage_shows_topic_landing_and_tables(page: Page) -> None:
    # The page of all assets has its groups closed, since there is more than one.
    page.goto("/locations/__repository__@batchmerge/asset-groups/flights/lineage")
    for kind in ("Kafka", "Spark", "Iceberg", "ClickHouse", "BigQuery"):
        expect(page.get_by_text(kind, exact=True).first).to_be_visible()
    assert page.get_by_text("flights", exact=True).count() >= 5
    expect(page.get_by_text(re.compile(r"\d+ / \d+ Passed")).first).to_be_visible()
    keep_picture(page, "lineage")


def test_materialization_shows_what_was_done(page: Page) -> None:
    page.goto(f"{TABLE}?view=events")
    for name in ("batches", "offsets before", "offsets after", "inserted", "updated", "deleted", "snapshot id", "VTTS"):
        expect(page.get_by_role("cell", name=name, exact=True).first).to_be_visible()
    keep_picture(page, "materialization")


def test_asset_states_its_merge_rule_sql_rows_columns_and_file(page: Page) -> None:
    page.goto(f"{TABLE}?view=overview")
    expect(page.get_by_text("a delete removes the row")).to_be_visible()
    expect(page.get_by_text("`last_changes`").first).to_be_visible()
    expect(page.get_by_text("arr_delay").first).to_be_visible()
    expect(page.get_by_text("26,483").first).to_be_visible()
    expect(page.get_by_text(re.compile("Open .*defs.yaml"))).to_be_visible()
    keep_picture(page, "table")


def test_failed_check_is_seen_and_a_backfill_by_clicking_repairs_the_table(
    page: Page, batchmerge: Callable[..., tuple[int, str]], connections: Connections
) -> None:
    catalog = IcebergCatalog("lake", connections.get("lake", IcebergConnection))
    catalog.require("air.flights").delete("carrier == 'HA'")
    code, output = batchmerge("verify", "flights")
    assert code == 1, output
    page.goto(f"{TABLE}?view=checks")
    for check in ("offsets_contiguous", "batch_is_next", "keys_unique", "caught_up", "schema_as_declared"):
        expect(page.get_by_text(check, exact=True).first).to_be_visible()
    page.get_by_text("reconciled", exact=True).first.click()
    expect(page.get_by_text("rows, landed changes make 26483").first).to_be_visible()
    expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
    keep_picture(page, "checks")

    now = datetime.now(UTC)
    first, last = [at.strftime("%Y-%m-%d-%H:00") for at in (now - timedelta(hours=2), now)]
    page.goto("/asset-groups")
    page.get_by_text("Materialize all").click()
    page.get_by_placeholder("No matching partitions").fill(f"[{first}...{last}]")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Launch backfill").click()
    page.goto("/runs?view=backfills")
    expect(page.get_by_text(re.compile("Completed|Success")).first).to_be_visible(timeout=400_000)
    keep_picture(page, "backfill")
    code, output = batchmerge("verify", "flights")
    assert code == 0, output
