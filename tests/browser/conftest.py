"""A real headless Chromium on a real Dagster page, after a real demo."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from resources.local.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
_PATIENCE = 60


@pytest.fixture
def batchmerge(stack: Path) -> Callable[..., tuple[int, str]]:
    """Runs a command on the data folder of `ui`; exit code and output."""
    environment = {**os.environ, "BATCHMERGE_HOME": str(stack), "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-c", "from orchestration.cli import main; main()"]

    def run(*command: str) -> tuple[int, str]:
        done = subprocess.run(
            [*program, *command], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def ui(stack: Path) -> Iterator[str]:
    """The address of Dagster's page, with its daemon, on a data folder in which the demo has run."""
    command = [sys.executable, "-c", "from orchestration.cli import main; main()"]
    environment = {**os.environ, "BATCHMERGE_HOME": str(stack), "PYTHONPATH": str(ROOT)}
    demo = subprocess.run([*command, "demo"], env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    port = free_port(())
    with (stack / "ui.log").open("w") as log:
        # A session of its own: dagster dev starts further processes, and all of them have to end with it.
        server = subprocess.Popen(
            [*command, "ui", "--port", str(port)],
            env=environment,
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _wait(f"http://127.0.0.1:{port}/server_info", server, stack / "ui.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            _stop(server)


@pytest.fixture
def page(ui: str) -> Iterator[Page]:
    """A new page of Chromium; `goto` takes paths below the address of `ui`."""
    # Imported here: the module is collected also where playwright is not installed.
    from playwright.sync_api import expect, sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on this machine: install it (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        opened = browser.new_page(base_url=ui, viewport={"width": 1400, "height": 850})
        opened.set_default_timeout(_PATIENCE * 1000)
        expect.set_options(timeout=_PATIENCE * 1000)
        yield opened
        browser.close()


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
    os.killpg(server.pid, signal.SIGINT)
    try:
        server.wait(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
