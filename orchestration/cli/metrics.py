"""`batchmerge metrics`: lag, batches, rows, dead letters and seconds, for Prometheus and OpenTelemetry."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from orchestration.cli import output

if TYPE_CHECKING:
    import dagster as dg

    from orchestration.metrics.measures import Sample


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=9464, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on.")
@click.option("--fresh", default=15.0, show_default=True, type=click.FloatRange(0.1, 86_400),
              help="Seconds between two looks at all systems.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print the metrics once and end.")
def metrics(host: str, port: int, fresh: float, once: bool) -> None:
    """Serve metrics of all pipelines as Prometheus text, until Ctrl-C.

    If OTEL_EXPORTER_OTLP_ENDPOINT names a collector, also sends them there (OTLP over HTTP).
    """
    from prometheus_client import CollectorRegistry, generate_latest, start_http_server

    from orchestration.cli.instance import dagster_instance
    from orchestration.metrics.exporter import Measured, provider

    logging.getLogger("batchmerge.metrics").addHandler(logging.StreamHandler())
    registry = CollectorRegistry()
    with dagster_instance() as instance:
        look = _look(instance)
        if once and output.wanted():
            output.result([_plain(sample) for sample in look()])
            return
        measured = Measured(look)
        made = provider(measured, registry)
        if once:
            measured.look()
            output.say(generate_latest(registry).decode().rstrip())
        else:
            try:
                server, _ = start_http_server(port, host, registry)
            except OSError as problem:
                what = f"{host}:{port} cannot be listened on ({problem.strerror})"
                raise click.UsageError(f"{what}: name another address with --host, or port with --port") from None
            address = f"http://{host}:{port}/metrics"
            output.say(f"metrics at {address}; Ctrl-C stops")
            output.result({"address": address})
            try:
                with measured.looking(fresh):
                    threading.Event().wait()
            finally:
                server.shutdown()
        made.shutdown()


def _plain(sample: Sample) -> dict[str, object]:
    labels = dict(zip(sample.measure.labels, sample.labels, strict=True))
    return {"name": sample.measure.name, "labels": labels, "value": sample.value}


def _look(instance: dg.DagsterInstance) -> Callable[[], Iterator[Sample]]:
    from orchestration.metrics.assets import pipeline_assets
    from orchestration.metrics.events import EventTotals
    from orchestration.metrics.tables import table_samples
    from orchestration.status.dagster_state import DagsterHere
    from orchestration.status.pipelines import pipeline_status

    totals, dagster = EventTotals(instance), DagsterHere(instance, with_ticks=False)

    def look() -> Iterator[Sample]:
        yield from table_samples(pipeline_status(dagster))
        yield from totals.samples(pipeline_assets())

    return look
