"""Whose process a dead run names."""

from __future__ import annotations

import os
from typing import Any, cast

import dagster as dg

from orchestration.names import LAUNCHER_TAG, PROCESS_TAG
from orchestration.runs.dead_runs import death_of
from orchestration.runs.run_process import process_tags


def test_a_retry_that_nobody_starts_names_its_launcher_and_not_the_process_of_the_run_before() -> None:
    """Dagster copies the tags of a run to the run that retries it."""
    launcher = {LAUNCHER_TAG: process_tags("retry")[PROCESS_TAG].replace("@", "1@")}  # another one had its id before
    tags = {PROCESS_TAG: "elsewhere 4711 1@0 before"} | launcher
    run = dg.DagsterRun("p", "retry", status=dg.DagsterRunStatus.STARTING, tags=tags)
    found = death_of(cast(Any, None), run)
    assert found == f"process {os.getpid()} is gone (killed, or the machine restarted)"
