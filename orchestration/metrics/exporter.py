"""The samples as OpenTelemetry metrics: scraped by Prometheus, and sent by OTLP if the environment names a receiver."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from prometheus_client import CollectorRegistry

from orchestration.metrics.measures import LOOK_AGE, MEASURES, Measure, Sample
from resources.errors import BatchmergeError

_LOG = logging.getLogger("batchmerge.metrics")
Look = Callable[[], Iterable[Sample]]
# Variables that name a receiver; OpenTelemetry's exporter reads its other variables itself.
_OTLP = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


class Measured:
    """The samples of the last look, for all metrics. A scrape does not wait for a look: with a system that hangs that
    takes half a minute, longer than Prometheus waits, and the values of the other systems would be missing too."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._samples: Sequence[Sample] = ()
        self._at = time.monotonic()

    def look(self) -> None:
        self._samples, self._at = list(self._look()), time.monotonic()

    @contextmanager
    def looking(self, pause: float) -> Iterator[None]:
        """Looks again and again in a thread, until the end.

        Args:
            pause: seconds between two looks.
        """
        over = threading.Event()
        thread = threading.Thread(target=self._keep_looking, args=(pause, over), name="batchmerge-look", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()

    def _keep_looking(self, pause: float, over: threading.Event) -> None:
        while not over.is_set():
            try:
                self.look()
            except Exception as problem:
                # The earlier samples stay; their age shows it.
                said = problem if isinstance(problem, BatchmergeError) else type(problem).__name__
                _LOG.warning("the systems could not be looked at: %s", said)
            over.wait(pause)

    def of(self, measure: Measure) -> list[Observation]:
        if measure == LOOK_AGE:
            return [Observation(time.monotonic() - self._at)]
        return [
            Observation(sample.value, dict(zip(measure.labels, sample.labels, strict=True)))
            for sample in self._samples
            if sample.measure == measure
        ]


def provider(measured: Measured, registry: CollectorRegistry) -> MeterProvider:
    """Every metric, read at each scrape of the registry; sent by OTLP too where the environment says so."""
    readers: list[MetricReader] = [
        PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    ]
    if any(os.environ.get(name) for name in _OTLP):
        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    made = MeterProvider(metric_readers=readers)
    meter = made.get_meter("batchmerge")
    for measure in MEASURES:
        instrument = meter.create_observable_counter if measure.counter else meter.create_observable_gauge
        instrument(measure.name, callbacks=[_callback(measured, measure)], description=measure.text)
    return made


def _callback(measured: Measured, measure: Measure) -> Callable[[CallbackOptions], list[Observation]]:
    return lambda _options: measured.of(measure)
