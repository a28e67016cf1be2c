"""What people see in Dagster's page. `SCREENSHOTS=<folder>` keeps pictures of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from resources.connections import Connections, IcebergConnection
from resources.iceberg import IcebergCatalog

pytest.importorskip("playwright", reason="needs the Python package playwright and an installed Chromium")
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.slow

TABLE = "/assets/iceberg/air/flights"
LANDING = "/assets/landing/flights"
# Pixels of a canvas that are neither grey nor white: those of a line or of its points.
_COLOURED = """canvas => {
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let found = 0;
  for (let n = 0; n < data.length; n += 4)
    if (data[n + 3] > 128 && Math.max(...data.slice(n, n + 3)) - Math.min(...data.slice(n, n + 3)) > 60) found++;
  return found;
}"""


def _picture(page: Page, name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        # Fonts and plots move for a moment after they are there.
        page.wait_for_load_state("networkidle")
        page.screenshot(path=str(Path(folder) / f"{name}.png"), animations="disabled")


def test_lineage_shows_topic_landing_and_tables(page: Page) -> None:
    page.goto("/asset-groups")
    for kind in ("Kafka", "Spark", "Iceberg", "ClickHouse", "BigQuery"):
        expect(page.get_by_text(kind, exact=True).first).to_be_visible()
    assert page.get_by_text("flights", exact=True).count() >= 5
    expect(page.get_by_text(re.compile(r"\d+ / \d+ Passed")).first).to_be_visible()
    _picture(page, "lineage")


def test_materialization_shows_what_was_done(page: Page) -> None:
    page.goto(f"{TABLE}?view=events")
    for name in ("batches", "offsets before", "offsets after", "inserted", "updated", "deleted", "snapshot id", "VTTS"):
        expect(page.get_by_role("cell", name=name, exact=True).first).to_be_visible()
    _picture(page, "materialization")


def test_asset_states_its_merge_rule_rows_columns_and_file(page: Page) -> None:
    page.goto(f"{TABLE}?view=overview")
    expect(page.get_by_text("a delete removes the row")).to_be_visible()
    expect(page.get_by_text("arr_delay").first).to_be_visible()
    expect(page.get_by_text("26,483").first).to_be_visible()
    expect(page.get_by_text(re.compile("Open .*defs.yaml"))).to_be_visible()
    _picture(page, "table")


def test_lag_is_plotted_with_its_points(page: Page) -> None:
    page.goto(f"{LANDING}?view=overview")
    page.get_by_role("button", name="Plots").click()
    title = page.get_by_text("lag", exact=True).first
    expect(title).to_be_visible()
    plot = title.locator("xpath=following::canvas[1]")
    page.wait_for_function(f"canvas => ({_COLOURED})(canvas) > 20", arg=plot.element_handle())
    plot.scroll_into_view_if_needed()
    _picture(page, "lag")


def test_failed_check_is_seen_and_a_backfill_by_clicking_mends_the_table(
    page: Page, batchmerge: Callable[..., tuple[int, str]], connections: Connections
) -> None:
    catalog = IcebergCatalog("lake", connections.get("lake", IcebergConnection))
    catalog.require("air.flights").delete("carrier == 'HA'")
    code, told = batchmerge("verify", "flights")
    assert code == 1, told
    page.goto(f"{TABLE}?view=checks")
    for check in ("offsets_contiguous", "batch_is_next", "keys_unique", "caught_up", "schema_as_declared"):
        expect(page.get_by_text(check, exact=True).first).to_be_visible()
    page.get_by_text("reconciled", exact=True).first.click()
    expect(page.get_by_text("rows, landed changes make 26483").first).to_be_visible()
    expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
    _picture(page, "checks")

    now = datetime.now(UTC)
    first, last = [at.strftime("%Y-%m-%d-%H:00") for at in (now - timedelta(hours=2), now)]
    page.goto("/asset-groups")
    page.get_by_text("Materialize all").click()
    page.get_by_placeholder("No matching partitions").fill(f"[{first}...{last}]")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Launch backfill").click()
    page.goto("/runs?view=backfills")
    expect(page.get_by_text(re.compile("Completed|Success")).first).to_be_visible(timeout=400_000)
    _picture(page, "backfill")
    code, told = batchmerge("verify", "flights")
    assert code == 0, told
