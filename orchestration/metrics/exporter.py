"""The samples as OpenTelemetry metrics: scraped by Prometheus, and sent by OTLP where the environment names a place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from prometheus_client import CollectorRegistry

from orchestration.metrics.measures import MEASURES, Measure, Sample

Look = Callable[[], Iterable[Sample]]
# Each names the place that metrics are sent to; OpenTelemetry's exporter reads the rest of its variables itself.
_OTLP = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


class Measured:
    """What was seen at one look, for all metrics; a look at every system is too dear for each metric of each scrape.

    Args:
        fresh: seconds for which a look is good.
    """

    def __init__(self, look: Look, fresh: float) -> None:
        self._look, self._fresh = look, fresh
        self._samples: Sequence[Sample] = ()
        self._at = -fresh

    def of(self, measure: Measure) -> list[Observation]:
        if time.monotonic() - self._at >= self._fresh:
            self._samples, self._at = list(self._look()), time.monotonic()
        return [
            Observation(sample.value, dict(zip(measure.labels, sample.labels, strict=True)))
            for sample in self._samples
            if sample.measure == measure
        ]


def provider(look: Look, fresh: float, registry: CollectorRegistry) -> MeterProvider:
    """Every metric, read at each scrape of the registry; sent by OTLP too where the environment says so."""
    readers: list[MetricReader] = [
        PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    ]
    if any(os.environ.get(name) for name in _OTLP):
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    made, measured = MeterProvider(metric_readers=readers), Measured(look, fresh)
    meter = made.get_meter("batchmerge")
    for measure in MEASURES:
        instrument = meter.create_observable_counter if measure.counter else meter.create_observable_gauge
        instrument(measure.name, callbacks=[_callback(measured, measure)], description=measure.text)
    return made


def _callback(measured: Measured, measure: Measure) -> Callable[[CallbackOptions], list[Observation]]:
    return lambda _options: measured.of(measure)
