"""The lag plot: points of the lag sensor, which Dagster's daemon runs, while records come and are merged.

It runs after `test_ui.py`, whose pictures are of the demo alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import groupby

import pytest
from confluent_kafka import Producer

from resources.connections import Connections, KafkaConnection
from tests.kit.dagster_dev import ask

pytest.importorskip("playwright", reason="needs the Python package playwright and an installed Chromium")
from playwright.sync_api import Page, expect

from tests.browser.pictures import keep_picture, wait_until_drawn
from tests.kit.waiting import PATIENCE

pytestmark = pytest.mark.slow

LAG = "flights: lag"
_POINTS = """{ assetOrError(assetKey: {path: ["kafka", "flights"]}) { ... on Asset { assetMaterializations(limit: 100) {
    runId metadataEntries { label ... on IntMetadataEntry { intValue } } } } } }"""
# The sensor looks every 30 s.
_PATIENCE = 120


def _points(ui: str) -> list[tuple[str | None, int]]:
    """Run and lag of each point, in the order of time: what Dagster draws the plot from."""
    found = ask(ui, _POINTS, {})["assetOrError"]["assetMaterializations"]
    return [
        (event["runId"], entry["intValue"])
        for event in reversed(found)
        for entry in event["metadataEntries"]
        if entry["label"] == LAG
    ]


def _wait_for_point(ui: str, lag: int) -> None:
    until = time.monotonic() + _PATIENCE
    while not (points := _points(ui)) or points[-1][1] != lag:
        assert time.monotonic() < until, f"no point of {lag}: {points}"
        time.sleep(0.5)


def _delete_unknown_flights(connections: Connections, count: int) -> None:
    """Records that wait like any others, and leave the tables as they are."""
    producer = Producer({"bootstrap.servers": connections.get("kafka", KafkaConnection).bootstrap_servers})
    for flight in range(count):
        key = {"carrier": "ZZ", "flight": flight, "origin": "JFK", "scheduled": "2013-01-01T00:00:00Z"}
        producer.produce("flights", key=json.dumps(key), value=None)
    assert producer.flush(PATIENCE) == 0


def test_lag_is_plotted_as_it_rises_and_falls(
    page: Page, ui: str, batchmerge: Callable[..., tuple[int, str]], connections: Connections
) -> None:
    _wait_for_point(ui, 0)
    lags = [0]
    for records in (3000, 5000, 0, 6000, 2000, 0):
        if records:
            _delete_unknown_flights(connections, records)
        else:
            code, output = batchmerge("run", "flights", "--until-caught-up")
            assert code == 0, output
        lags.append(lags[-1] + records if records else 0)
        _wait_for_point(ui, lags[-1])

    points = _points(ui)
    # A tick may fall between landing and merge, and then has a point of its own: of less lag, or of as much as before.
    assert [lag for lag, _ in groupby(lag for _, lag in points if lag in lags)] == lags, points
    assert not any(run for run, _ in points), "no run is spent on a point"
    page.goto("/assets/kafka/flights?view=overview")
    page.get_by_role("button", name="Plots").click()
    title = page.get_by_text(LAG, exact=True).first
    expect(title).to_be_visible()
    plot = title.locator("xpath=following::canvas[1]")
    wait_until_drawn(page, plot, width=0.5, height=0.3)
    plot.scroll_into_view_if_needed()
    keep_picture(page, "lag")
