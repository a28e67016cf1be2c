"""`batchmerge metrics` as it serves: to Prometheus, to a collector of OTLP, whatever the systems do meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from orchestration.metrics import measures
from orchestration.metrics.exporter import Measured, provider
from orchestration.metrics.measures import MEASURES, Sample
from resources.local.ports import free_port
from tests.kit import specs
from tests.kit.flow import Flow
from tests.kit.waiting import until
from tests.kit.web import Handler, serving


def _one_of_each() -> Iterator[Sample]:
    for number, measure in enumerate(MEASURES):
        yield Sample(measure, tuple(f"<{label}>" for label in measure.labels), float(number))


@pytest.fixture
def scraped() -> Iterator[Callable[[Measured], dict[str, Metric]]]:
    """The families that a scrape of what was measured gives, by name."""
    made: list[MeterProvider] = []
    registries: dict[Measured, CollectorRegistry] = {}

    def scrape(measured: Measured) -> dict[str, Metric]:
        if measured not in registries:
            registries[measured] = CollectorRegistry()
            made.append(provider(measured, registries[measured]))
        text = generate_latest(registries[measured]).decode()
        return {family.name: family for family in text_string_to_metric_families(text)}

    yield scrape
    for one in made:
        one.shutdown()


Scraped = Callable[[Measured], dict[str, Metric]]


def test_prometheus_reads_every_metric_under_its_name(scraped: Scraped) -> None:
    measured = Measured(_one_of_each)
    measured.look()
    families = scraped(measured)
    for number, measure in enumerate(MEASURES):
        family = families[measure.name.removesuffix("_total") if measure.counter else measure.name]
        (sample,) = (s for s in family.samples if s.name == measure.name)
        assert family.documentation == measure.text
        assert sample.value == number or measure == measures.LOOK_AGE
        assert sample.labels == {label: f"<{label}>" for label in measure.labels}
        assert (family.type == "counter") is measure.counter


def test_a_scrape_waits_for_no_look_and_shows_how_old_the_last_one_is(
    scraped: Scraped, caplog: pytest.LogCaptureFixture
) -> None:
    looks: SimpleQueue[list[Sample] | None] = SimpleQueue()

    def look() -> list[Sample]:
        """Hangs until it is given what it sees; None: it fails."""
        if (seen := looks.get()) is None:
            raise RuntimeError("no such file")  # of somebody else: its text may hold anything
        return seen

    def lag(families: dict[str, Metric]) -> float | None:
        return families[measures.LAG.name].samples[0].value if measures.LAG.name in families else None

    def age() -> float:
        value: float = scraped(measured)[measures.LOOK_AGE.name].samples[0].value
        return value

    measured = Measured(look)
    with measured.looking(0.0):
        assert lag(scraped(measured)) is None
        young = age()
        until(lambda: age() > young)  # before the first look has ended, too
        looks.put([Sample(measures.LAG, ("p", "iceberg a.t"), 5.0)])
        until(lambda: lag(scraped(measured)) == 5.0)
        looks.put(None)
        looks.put([Sample(measures.LAG, ("p", "iceberg a.t"), 7.0)])
        until(lambda: lag(scraped(measured)) == 7.0)
        young = age()
        until(lambda: age() > young)  # the next look hangs
        assert lag(scraped(measured)) == 7.0
    looks.put([])
    assert "the systems could not be looked at: RuntimeError" in caplog.text
    assert "no such file" not in caplog.text


def test_the_command_serves_them_until_it_is_ended(tmp_path: Path) -> None:
    specs.write(tmp_path / "defs", "one", Flow("t", ["append"], name="one").spec_document)
    variables = {"BATCHMERGE_HOME": str(tmp_path / "home"), "BATCHMERGE_PIPELINES": str(tmp_path / "defs")}
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    port = free_port(())
    command = [str(Path(sys.executable).with_name("batchmerge")), "metrics", "--port", str(port), "--json"]
    address = f"http://127.0.0.1:{port}/metrics"

    def scrape() -> str:
        try:
            with urllib.request.urlopen(address) as answer:
                return str(answer.read().decode())
        except urllib.error.URLError:
            return ""

    with subprocess.Popen(command, env={**environment, **variables}, stdout=subprocess.PIPE, text=True) as server:
        try:
            until(lambda: "batchmerge_daemon_up 0.0" in scrape() or server.poll() is not None)
            assert "batchmerge_look_age_seconds" in scrape()
        finally:
            server.send_signal(signal.SIGINT)
        output, _ = server.communicate()
    assert (server.returncode, json.loads(output)) == (130, {"address": address})


def test_where_the_environment_names_a_collector_every_metric_is_sent_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[tuple[str, ExportMetricsServiceRequest]] = []

    class Collector(Handler):
        def do_POST(self) -> None:
            received.append((self.path, ExportMetricsServiceRequest.FromString(self.body())))
            self.answer(200, headers={"Content-Type": "application/x-protobuf"})

    measured = Measured(_one_of_each)
    measured.look()
    with serving(Collector) as address:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        made = provider(measured, CollectorRegistry())
        assert made.force_flush()
        made.shutdown()
    path, request = received[0]
    assert path == "/v1/metrics"
    scopes = [scope for resource in request.resource_metrics for scope in resource.scope_metrics]
    assert [scope.scope.name for scope in scopes] == ["batchmerge"]
    sent = {metric.name: metric for scope in scopes for metric in scope.metrics}
    assert sent.keys() == {measure.name for measure in MEASURES}
    for number, measure in enumerate(MEASURES):
        metric = sent[measure.name]
        assert metric.WhichOneof("data") == ("sum" if measure.counter else "gauge")
        (point,) = (metric.sum if measure.counter else metric.gauge).data_points
        assert point.as_double == number or measure == measures.LOOK_AGE
        assert {one.key: one.value.string_value for one in point.attributes} == {
            label: f"<{label}>" for label in measure.labels
        }
