"""Whether a Dagster daemon runs on an instance: it takes runs out of the queue, and ticks schedules and sensors."""

from __future__ import annotations

import time

import dagster as dg

# Seconds without a heartbeat after which the daemon counts as down; its parts send one every 30 s.
_SILENT = 90


def daemon_runs(instance: dg.DagsterInstance) -> bool:
    heartbeats = [beat.timestamp for beat in instance.get_daemon_heartbeats().values()]
    return time.time() - max(heartbeats, default=0.0) < _SILENT
