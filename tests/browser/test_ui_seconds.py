"""Commits every few seconds as people see them: the continuous run, its plots, a pause; and a database of a hundred
tables, which has to stay readable. `SCREENSHOTS=<folder>` keeps pictures of it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.connections_file import load_connections
from orchestration.names import CONTINUOUS_TAG
from resources.connections import Connections
from tests.browser import database
from tests.browser.pictures import keep_picture, opened_page, wait_until_drawn
from tests.kit import specs
from tests.kit.continuous import STATUS, ContinuousRun, continuous_run
from tests.kit.records import bootstrap
from tests.kit.waiting import PATIENCE

pytest.importorskip("playwright", reason="needs the Python package playwright and an installed Chromium")
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.slow

NAME = "orders"
_DOCUMENT = {
    "description": "Orders as they are now.",
    "owners": ["team:web"],
    "source": {
        "topics": [NAME],
        "key": {"format": "json", "columns": {"id": "long"}},
        "value": {"format": "json", "columns": {"id": "long", "name": "string"}},
    },
    "changes": {"key": {"columns": ["id"]}},
    "tables": [{"kind": "iceberg", "table": "web.orders", "mode": "upsert"}],
    "interval": "1s",
}
_LOCATION = "/locations/__repository__@orchestration.definitions"
_TOPIC = dg.AssetKey(["kafka", NAME])


@pytest.fixture(scope="module")
def seconds(chromium: str, stack: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContinuousRun]:
    """Both pipelines under a daemon; orders come all the time, more of them every second minute."""
    del chromium
    connections, folder, ended = (
        load_connections(stack / "connections.yaml"),
        tmp_path_factory.mktemp("seconds"),
        threading.Event(),
    )
    database.make_topics(connections)
    admin = AdminClient({"bootstrap.servers": bootstrap(connections)})
    admin.create_topics([NewTopic(NAME, 1)])[NAME].result(timeout=60)
    specs.write(folder / "pipelines", NAME, _DOCUMENT)
    sender = threading.Thread(target=_send, args=(connections, ended))
    sender.start()
    try:
        with continuous_run(folder, stack / "connections.yaml", database.NAME, database.DOCUMENT) as one:
            yield one
    finally:
        ended.set()
        sender.join()


def _send(connections: Connections, ended: threading.Event) -> None:
    producer, number = Producer({"bootstrap.servers": bootstrap(connections)}), 0
    while not ended.wait(1):
        for _ in range(10 if number % 1500 < 600 else 15):
            key = json.dumps({"id": number % 500})
            producer.produce(NAME, json.dumps({"id": number % 500, "name": f"order {number}"}), key=key)
            number += 1
        assert producer.flush(PATIENCE) == 0


@pytest.fixture
def page(chromium: str, seconds: ContinuousRun) -> Iterator[Page]:
    with opened_page(chromium, seconds.page) as opened:
        yield opened


def test_a_hundred_tables_of_one_database_stay_readable(page: Page, seconds: ContinuousRun) -> None:
    table = dg.AssetKey(["iceberg", database.NAME, database.TABLES[-1]])
    seconds.until(lambda: seconds.materialization(table))
    page.goto("/asset-groups")
    for group in (NAME, *(f"{database.NAME}{what}" for what in ("", "_topics", "_iceberg"))):
        expect(page.get_by_text(group, exact=True).first).to_be_visible()
    assert page.get_by_text(database.TABLES[0]).count() == 0, "groups are closed"
    # Topics and tables: a count, or how many it is still asking about.
    expect(page.get_by_text(re.compile(r"^100( assets.*)?$")).nth(1)).to_be_visible()
    keep_picture(page, "database")
    page.goto(f"{_LOCATION}/asset-groups/{database.NAME}_iceberg/list")
    expect(
        page.get_by_text(f"Rows of {database.NAME}.public.{sorted(database.TABLES)[0]}, in mode").first
    ).to_be_visible()


def test_the_continuous_run_reports_again_and_again(page: Page, seconds: ContinuousRun) -> None:
    storage = seconds.instance
    seconds.until(lambda: len(storage.fetch_materializations(_TOPIC, limit=4).records) == 4)
    (run,) = storage.get_runs(dg.RunsFilter(tags={CONTINUOUS_TAG: NAME}, statuses=[STATUS.STARTED]))
    page.goto(f"/runs/{run.run_id}")
    expect(page.get_by_text("orders__iceberg__web__orders__continuous").first).to_be_visible()
    expect(page.get_by_text("Materialized value iceberg web orders.").first).to_be_visible()
    keep_picture(page, "continuous")
    page.goto("/assets/kafka/orders?view=overview")
    page.get_by_role("button", name="Plots").click()
    title = page.get_by_text(f"{NAME}: rows per minute", exact=True).first
    plot = title.locator("xpath=following::canvas[1]")
    wait_until_drawn(page, plot, width=0.5, height=0.3)
    plot.scroll_into_view_if_needed()
    keep_picture(page, "per-minute")


def test_pause_is_a_button_and_says_who(page: Page, seconds: ContinuousRun) -> None:
    page.goto(f"{_LOCATION}/jobs/{NAME}_pause/playground")
    page.get_by_role("button", name="Launch Run").click()
    expect(page.get_by_text(re.compile("paused by somebody in Dagster")).first).to_be_visible()
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    keep_picture(page, "paused")
    started = dg.RunsFilter(tags={CONTINUOUS_TAG: NAME}, statuses=[STATUS.STARTED])
    seconds.until(lambda: not seconds.instance.get_runs(started))
