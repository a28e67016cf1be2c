"""A real headless Chromium on a real Dagster page, after a real demo."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from resources.local.ports import free_port
from tests.browser.pictures import opened_page
from tests.kit.dagster_dev import running

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]


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
    home = {"BATCHMERGE_HOME": str(stack)}
    with running([*command, "ui"], free_port(()), home, stack / "ui.log") as address:
        yield address


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is; asked for before services start for nothing."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on this machine: install it (Debian: apt install chromium)")
    return found


@pytest.fixture
def page(chromium: str, ui: str) -> Iterator[Page]:
    """A new page of Chromium; `goto` takes paths below the address of `ui`."""
    with opened_page(chromium, ui) as opened:
        yield opened
