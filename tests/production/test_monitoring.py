"""Prometheus' own tool on what `batchmerge metrics` serves and on the alert rules (Debian: package `prometheus`)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from orchestration.metrics.exporter import Measured, provider
from orchestration.metrics.measures import MEASURES, Sample

pytestmark = pytest.mark.production
_DOCS = Path(__file__).parents[2] / "docs" / "monitoring"


def _promtool(*arguments: str, given: bytes = b"") -> None:
    promtool = shutil.which("promtool")
    assert promtool, "promtool is not on PATH: install Debian's package prometheus"
    done = subprocess.run([promtool, *arguments], input=given, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def _one_of_each() -> Iterator[Sample]:
    for measure in MEASURES:
        yield Sample(measure, tuple(f"iceberg {label}" for label in measure.labels), 1.0)


def test_metrics_follow_prometheus_rules() -> None:
    registry = CollectorRegistry()
    measured = Measured(_one_of_each)
    measured.look()
    made = provider(measured, registry)
    text = generate_latest(registry)
    made.shutdown()
    _promtool("check", "metrics", given=text)


def test_alert_rules_fire_when_they_should() -> None:
    _promtool("check", "rules", str(_DOCS / "alerts.yaml"))
    _promtool("test", "rules", str(_DOCS / "alerts_test.yaml"))
