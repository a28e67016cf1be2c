"""What people see in Dagster's page. `SCREENSHOTS=<folder>` keeps pictures of it."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="needs the Python package playwright and an installed Chromium")
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.slow

TABLE = "/assets/iceberg/air/flights"
LANDING = "/assets/landing/flights"


def _picture(page: Page, name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def test_lineage_shows_topic_landing_and_table(page: Page) -> None:
    page.goto("/asset-groups")
    nodes = page.get_by_text("flights", exact=True)
    for kind in ("Kafka", "Spark", "Iceberg"):
        expect(page.get_by_text(kind, exact=True).first).to_be_visible()
    expect(page.get_by_text("Asset checks").first).to_be_visible()
    expect(page.get_by_text("4 / 4 Passed")).to_be_visible()
    assert nodes.count() >= 3
    _picture(page, "lineage")


def test_materialization_shows_what_was_done(page: Page) -> None:
    page.goto(f"{TABLE}?view=events")
    for name in ("batches", "offsets before", "offsets after", "inserted", "updated", "deleted", "snapshot id", "VTTS"):
        expect(page.get_by_role("cell", name=name, exact=True).first).to_be_visible()
    _picture(page, "materialization")


def test_asset_states_its_merge_rule_columns_and_file(page: Page) -> None:
    page.goto(f"{TABLE}?view=overview")
    expect(page.get_by_text("a delete removes the row")).to_be_visible()
    expect(page.get_by_text("arr_delay").first).to_be_visible()
    expect(page.get_by_text(re.compile("Open .*defs.yaml"))).to_be_visible()
    _picture(page, "table")


def test_checks_are_listed(page: Page) -> None:
    page.goto(f"{TABLE}?view=checks")
    for check in ("offsets_contiguous", "batch_is_next", "keys_unique", "caught_up"):
        expect(page.get_by_text(check, exact=True).first).to_be_visible()
    _picture(page, "checks")


def test_lag_is_plotted(page: Page) -> None:
    page.goto(f"{LANDING}?view=overview")
    page.get_by_role("button", name="Plots").click()
    expect(page.get_by_text("lag", exact=True).first).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()
    _picture(page, "lag")


def test_backfill_is_launched_by_clicking_and_ends_green(page: Page) -> None:
    now = datetime.now(UTC)
    first, last = [at.strftime("%Y-%m-%d-%H:00") for at in (now - timedelta(hours=1), now)]
    page.goto("/asset-groups")
    page.get_by_text("Materialize all").click()
    page.get_by_placeholder("No matching partitions").fill(f"[{first}...{last}]")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Launch backfill").click()
    page.goto("/runs?view=backfills")
    expect(page.get_by_text(re.compile("Completed|Success")).first).to_be_visible()
    _picture(page, "backfill")
