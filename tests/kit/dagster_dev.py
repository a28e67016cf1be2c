"""A real Dagster on this machine: page, code server, and the daemon that runs schedules, sensors and backfills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# A busy machine has taken two minutes to start Dagster.
_PATIENCE = 400


@contextmanager
def running(
    command: Sequence[str], port: int, environment: Mapping[str, str], log: Path, folder: Path = ROOT
) -> Iterator[str]:
    """Runs a command that starts `dagster dev` on this port in this folder; the address of its page."""
    with started(command, port, environment, log, folder) as (address, _):
        yield address


@contextmanager
def started(
    command: Sequence[str], port: int, environment: Mapping[str, str], log: Path, folder: Path = ROOT
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """As `running`, with the process, which leads the group of all processes that it starts."""
    address = f"http://127.0.0.1:{port}"
    with log.open("w") as out:
        # A session of its own: dagster dev starts further processes, and all of them have to end with it.
        server = subprocess.Popen(
            [*command, "--port", str(port)],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            cwd=folder,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            _wait(f"{address}/server_info", server, log)
            yield address, server
        finally:
            _stop(server)


def ask(address: str, query: str, variables: Mapping[str, object]) -> Any:
    """The data that a GraphQL query gives."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{address}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        found = json.load(answer)
    assert "errors" not in found, found
    return found["data"]


def _wait(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except (urllib.error.URLError, OSError):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        else:
            return


def _stop(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is not None:
        return
    os.killpg(server.pid, signal.SIGINT)
    try:
        server.wait(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
